"""The lint of metal/: the sources pass, and each rule catches what it is for."""

from __future__ import annotations

import pytest

from metal import lint, lint_host, lint_kernels
from metal.lint_kernels import Argument


def clang_is_here():
    """A clang that metal_clang.py takes."""
    try:
        lint.metal_clang.find_clang(None)
    except SystemExit:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not clang_is_here(),
    reason=f"THE LINT OF metal/ IS SKIPPED: no clang {lint.metal_clang.MIN_CLANG} on the PATH",
)

SOURCES = lint.kernel_files()


def name(path):
    """Of a test."""
    return path.name


@pytest.mark.parametrize("path", lint.metal_files(), ids=name)
def test_words(path):
    """Words that Metal has not."""
    assert not lint.check_text(path.name, path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_types(path):
    """Address spaces, state, conversions, recursion."""
    assert not lint.check_source(path)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_kernels(path):
    """Buffers, threads and threadgroup memory of every instantiation."""
    assert lint_kernels.read_kernels(path).made
    assert not lint_kernels.check_kernels(path)


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_kernels_are_what_the_host_records(path):
    """Names, access and threads, by the table of src/cpu/kernels.h and by recorded steps."""
    assert not list(lint_host.check_launches(path.name, lint_kernels.read_kernels(path)))


def test_no_kernel_is_missing():
    """What the host may ask a GPU for is there."""
    assert not lint_host.missing_kernels()


def test_the_table_is_what_the_host_records():
    """src/cpu/kernels.h tells of each kernel what src/ops binds."""
    seen = set()
    for launch in lint_host.recorded().values():
        line = lint_host.line_of(launch.kernel)
        assert line is not None, launch.kernel
        seen.add(line)
        expected = tuple(argument.access for argument in lint_host.table()[line])
        assert launch.accesses == expected, launch.kernel
    assert seen == lint_host.table().keys()


# --- planted ----------------------------------------------------------------------------------

WORDS = [
    ("double", "inline float f(float x) { double y = x; return y; }"),
    ("double", "inline float f(float x) { return (double)x; }"),
    ("literal", "constant float half_ = 0.5;"),
    ("literal", "inline float f() { return 1.0; }"),
    ("literal", "inline float f() { return 1e-6; }"),
    ("literal", "inline float f() { return .5 + 2.0f; }"),
    ("literal", "inline float f() { return 0x1p-24; }"),
    ("lambda", "inline uint f() { const auto g = [](uint n) { return n; }; return g(1); }"),
    ("lambda", "inline uint f(uint m) { return call([&] { return m; }); }"),
    ("goto", "inline void f() { again: goto again; }"),
    ("exceptions", "inline void f() { throw 1; }"),
    ("exceptions", "inline void f() { try { f(); } catch (int) {} }"),
    ("new and delete", "inline void f() { thread int* p = new int; }"),
    ("new and delete", "inline void f(thread int* p) { delete p; }"),
    ("virtual", "struct A { virtual void f() thread; };"),
    ("run-time types", "inline void f(thread A* a) { dynamic_cast<thread B*>(a); }"),
    ("run-time types", "inline bool f(A a) { return typeid(a) == typeid(int); }"),
    ("std", "inline float f(float x) { return std::exp(x); }"),
    ("std", "#include <algorithm>"),
    ("vec constructor", "inline float4 f() { return vec<float, 4>(0.0f, 1.0f, 2.0f, 3.0f); }"),
    ("vec constructor", "template <class T> vec<T, 2> f(T a) { return vec<T, 2>{a, a}; }"),
    ("asm", 'inline void f() { __asm__ volatile("nop"); }'),
    ("asm", 'inline void f() { asm("nop"); }'),
    ("kernel word", "kernel void f(device float* x [[buffer(0)]]) {}"),
    ("kernel word", "[[kernel]] void f(device float* x [[buffer(0)]]) {}"),
    ("kernel word", 'template [[host_name("g")]] [[kernel]] void g<float>();'),
]


@pytest.mark.parametrize(("rule", "code"), WORDS)
def test_planted_words(rule, code):
    """Each is found, and nothing of it in a comment or a string."""
    assert rule in {finding.rule for finding in lint.check_text("planted.metal", code)}
    quoted = "".join(f"// {line}\n" for line in code.splitlines())
    assert not lint.check_text("planted.metal", quoted)


def test_machine_code_has_its_files():
    """*_nvidia.h."""
    assert not lint.check_text("tile_nvidia.h", "inline void f() { __asm__ volatile(); }")


TYPES = [
    ("pointer", "struct S { float* x; };"),
    ("pointer", "struct S { const float* x; device float* y; };"),
    ("pointer", "inline void f(float* x) {}"),
    ("pointer", "inline void f(const float& x) {}"),
    ("pointer", "inline float* f(thread float* x) { return x; }"),
    ("pointer", "inline void f(device float* x) { const float* y = x; }"),
    ("pointer", "inline void f(thread float* x) { *(float*)x = 1.0f; }"),
    ("pointer", "inline void f(device float* thread* x, device float** y) {}"),
    ("pointer", "inline void f(float (&x)[4]) {}"),
    ("pointer", "template <class T> inline void f(T* x) {}"),
    ("pointer", "template <class T> inline void f(device T* x) { T& y = x[0]; }"),
    ("pointer", "template <class T> struct S { T* x; };"),
    ("pointer", "template <class T> struct S { T x; };\ninline void f() { S<float*> s; }"),
    ("pointer", "typedef float* Pointer;"),
    ("pointer", "struct S { uint n; uint get() const { return n; } };"),
    ("compiler", "inline void f(device float* x) { thread float* y = x; }"),
    ("compiler", "inline void f() { threadgroup float shared[32]; shared[0] = 1.0f; }"),
    ("compiler", "template <uint N> inline void f() { threadgroup float a[N]; a[0] = 1.0f; }\n"
     "inline void g() { f<8>(); }"),
    ("state", "uint calls;"),
    ("state", "static uint calls;"),
    ("state", "const float table[2] = {0.5f, 1.5f};"),
    ("state", "inline uint f() { static uint calls; return ++calls; }"),
    ("lambda", "inline uint f() { const auto g = [](uint n) { return n; }; return g(1); }"),
    ("double", "inline float f(float x) { const auto y = double(x); return float(y); }"),
    ("conversion", "inline bfloat f(float x) { return x; }"),
    ("conversion", "inline bfloat f() { bfloat x = 1.0f; return x; }"),
    ("conversion", "inline bfloat f(bfloat x) { x = x * 2.0f; return x; }"),
    ("conversion", "template <class A> inline void f(device A* x, float y) { *x = y; }\n"
     "inline void g(device bfloat* x) { f(x, 0.1f); }"),
    ("recursion", "inline uint f(uint n) { return n ? f(n - 1) : 0; }"),
    ("recursion", "uint g(uint n);\ninline uint f(uint n) { return g(n); }\n"
     "inline uint g(uint n) { return n ? f(n - 1) : 0; }"),
    ("recursion", "template <uint N> inline uint f(uint n) { return n ? f<N>(n - 1) : N; }"),
    ("recursion", "struct S { uint f(uint n) thread { return n ? f(n - 1) : 0; } };"),
]  # fmt: skip


def written(folder, code):
    """A .metal file of this code in namespace lily."""
    path = folder / "planted.metal"
    path.write_text(f'#include "kernel.h"\nnamespace lily {{\n{code}\n}}\n')
    return path


@pytest.mark.parametrize(("rule", "code"), TYPES)
def test_planted_types(tmp_path, rule, code):
    """Each is found, at its line."""
    found = [it for it in lint.check_source(written(tmp_path, code)) if it.rule == rule]
    assert found
    assert all(it.file == "planted.metal" and it.line >= 3 for it in found)


def test_clean_code_passes(tmp_path):
    """What looks like the planted and is not."""
    code = """
template <uint N, bool B> struct Sized { uint n[N]; };
struct S { device const float* x; uint n; uint get() const thread { return n; } };
constant float kHalf = 0.5f;
inline uint g(uint n) { return n; }
inline uint g(float x) { return g(uint(x)); }
template <class T> inline T f(thread const T (&x)[4], threadgroup T* y, S s) {
  Sized<2 * sizeof(T), sizeof(T) && true> sized;
  y[1] = T(float(sized.n[0]));
  LILY_THREADGROUP(T, shared, 4 * 8);
  for (uint i = 0; i < 4; ++i) shared[i] = T(float(x[i]) * kHalf + 1e-6f + 0x1p-3f);
  y[0] = shared[0];
  return T(s.x[s.get()]);
}
template <class T> [[kernel]] void k(device T* x [[buffer(0)]],
    constant NormRmsParams& p [[buffer(1)]], LILY_PLACE) { x[lane] = T(1.0f); }
LILY_KERNEL(k_bf16, 32, k<bfloat>)
"""
    path = written(tmp_path, code)
    assert not lint.check_text(path.name, path.read_text())
    assert not lint.check_source(path)
    assert not lint_kernels.check_kernels(path)


PLACE = "constant NormRmsParams& p [[buffer(%d)]], LILY_PLACE"
X = "device float* x [[buffer(%d)]], "
Y = "device float* y [[buffer(%d)]], "
KERNELS = [
    ("buffers", X % 1 + PLACE % 2, "", 32),
    ("buffers", X % 0 + Y % 0 + PLACE % 1, "", 32),
    ("buffers", X % 1 + Y % 0 + PLACE % 2, "", 32),
    ("buffers", (PLACE % 0).replace("LILY", X % 1 + "LILY"), "", 32),
    ("buffers", "device float* x, " + PLACE % 0, "", 32),
    ("threads", X % 0 + PLACE % 1, "", 1056),
    ("threads", X % 0 + PLACE % 1, "", 48),
    ("threadgroup memory", X % 0 + PLACE % 1,
     "LILY_THREADGROUP(float, a, 4096); LILY_THREADGROUP(uint, b, 4097); a[0] = b[0];", 32),
    ("threadgroup memory", X % 0 + PLACE % 1, "helper();", 32),
    ("fence", X % 0 + PLACE % 1,
     "x[lane] = 1.0f; threadgroup_barrier(mem_flags::mem_threadgroup); reader(x + 1);", 32),
]  # fmt: skip
HELPERS = (
    "inline void helper() { LILY_THREADGROUP(float, a, 8200); a[0] = 1.0f; }\n"
    "inline float reader(device const float* x) { return *x; }\n"
)


@pytest.mark.parametrize(("rule", "arguments", "body", "threads"), KERNELS)
def test_planted_kernels(tmp_path, rule, arguments, body, threads):
    """Wrong buffers, too many threads, too much memory, no fence."""
    code = f"{HELPERS}[[kernel]] void k({arguments}) {{ {body} }}\nLILY_KERNEL(k_f32, {threads}, k)"
    found = lint_kernels.check_kernels(written(tmp_path, code))
    assert {it.rule for it in found} == {rule}


def arguments_of(function):
    """Of a kernel function of metal/."""
    for source in SOURCES:
        kernels = lint_kernels.read_kernels(source)
        if function in kernels.arguments:
            return list(kernels.arguments[function])
    raise LookupError(function)


def test_planted_bindings():
    """A binding too few, two that changed places, a const too many and one too few."""
    right = arguments_of("norm_rms")
    check = lint_host.check_arguments
    assert not list(check("norm_rms_f32", "norm_rms", right))
    x, gain, y, p = right
    wrong = [
        [x, y, p],
        [gain, x, y, p],
        [x, gain, Argument("y", 2, "in"), p],
        [x, Argument("gain", 1, "out"), y, p],
    ]
    for arguments in wrong:
        assert list(check("norm_rms_f32", "norm_rms", arguments))
    assert list(check("unknown_f32", "unknown", right))
    scales_first = arguments_of("embed_rows")
    scales_first[1:3] = reversed(scales_first[1:3])
    assert list(check("embed_rows_q4", "embed_rows", scales_first))


def test_planted_launches():
    """Threads and access that the host does not record, and kernels that it never does."""
    source = lint.METAL / "norm.metal"
    kernels = lint_kernels.read_kernels(source)
    made = kernels.made["norm_rms_bf16"]

    def findings(**changed):
        return [str(it) for it in lint_host.check_launches("norm.metal",
                lint_kernels.Kernels(**vars(kernels) | changed))]  # fmt: skip

    half = {"norm_rms_bf16": lint_kernels.Made(128, made.bindings, 32)}
    assert "128 threads, the host launches 256" in findings(made=half)[0]
    unknown = {"norm_rms_bf8": made}
    assert "never records it" in findings(made=unknown)[0]

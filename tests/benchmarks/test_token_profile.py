"""`bench token`: Nsight Compute's tables, what a kernel must move, and the whole with a stand-in.

The stand-in for ncu runs the program that it is given and writes a table as the real one does: two
lines of head, thousands with commas, lines of its own in between.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from types import SimpleNamespace

import pytest
from lily._native import kernels as native
from lily.hub import shipped_model

from bench import __main__ as command
from bench import harness, ncu, token_table
from bench.kernel_cases import decode_cases
from bench.kernel_memory import Memory
from bench.machine import ROOT
from bench.shapes import REAL, TINY
from bench.token_bytes import (
    ATTENTION_PREFILL,
    DELTA_PREFILL,
    EXPERTS_PREFILL,
    assign,
    decode_stages,
    prefill_stages,
)
from bench.token_profile import _Probe, summarise

TABLE = """==WARNING== Note: Running with uncontrolled GPU caches. Profiling results may be [...]
==PROF== Connected to process 812 (python3.12)
==PROF== Disconnected from process 812
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","dram__bytes_read.avg","dram__bytes_read.sum",\
"dram__bytes_write.sum","gpu__time_duration.sum",\
"launch__registers_per_thread","lts__t_bytes.sum","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","byte","byte","byte","ns","register/thread","byte","%"
"0","812","python3.12","127.0.0.1","embed_rows_q4","1","13","(256, 1, 1)","(1, 1, 1)","0","9.0",\
"24","1,152","8,192","1,984","18","10,240","6.25"
"1","812","python3.12","127.0.0.1","linear_gemv_norm_q4_i32x256","1","13","(256, 1, 1)",\
"(386, 1, 1)","0","9.0","296,448","14,229,504","49,408","5,216.5","64","n/a","48.7"
"""


def test_a_table_of_ncu():
    first, second = ncu.parse(TABLE)
    assert (first.kernel, first.grid, first.block) == ("embed_rows_q4", "1x1x1", "256x1x1")
    assert first.microseconds == pytest.approx(1.984)
    assert first.dram_bytes == 9344
    assert first.values[ncu.REGISTERS] == 18
    assert second.grid == "386x1x1"
    assert second.microseconds == pytest.approx(5.2165)
    assert second.dram_bytes == 14_278_912
    assert ncu.L2 not in second.values


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ID"', '"No"', "no table of kernels; it said: ==WARNING== Note"),
        ('"ns"', '"fortnight"', "'1,984' in 'fortnight'"),
        ("gpu__time_duration.sum", "sm__cycles_active.avg", "lacks gpu__time_duration.sum"),
        ('"14,229,504"', '"n/a"', "could not measure all of .* of 'linear_gemv_norm_q4_i32x256'"),
    ],
)
def test_another_table_is_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        ncu.parse(TABLE.replace(old, new))


def test_units():
    text = TABLE.replace('"ns"', '"us"').replace('"byte","byte","byte"', '"Mbyte","Mbyte","Kbyte"')
    assert ncu.parse(text)[0].microseconds == 1984
    assert ncu.parse(text)[0].values[ncu.READ] == 1152e6


def test_what_must_move_is_what_the_single_kernels_say():
    """The same bytes as in the cases of `bench gpu`, whose kernels are timed by themselves."""
    context = 700
    cases = decode_cases(Memory(native.Device("cpu"), 1 << 20), TINY, "q4", (context,))
    of_cases = {f"{c.family}_{c.kernel}".replace("gemv_", ""): c.moved_bytes for c in cases[2:]}
    of_cases |= {("linear_norm", c.shape.split()[0]): c.moved_bytes for c in cases[:2]}
    stages = decode_stages(TINY, context)
    for stage in stages:
        if stage.operation == "linear_norm":
            heads = "q|k|v" if stage.part == "attention" else "qkv|z|b|a"
            assert stage.moved_bytes == of_cases["linear_norm", heads]
        elif stage.operation not in ("embed_rows", "attention_merge"):  # small; parts differ
            assert stage.moved_bytes == of_cases[stage.operation], stage


def test_the_real_models_token():
    """DESIGN's figure, 1,798 MB, and 20,480 bytes for each token of the context."""
    at = [sum(s.moved_bytes for s in decode_stages(REAL, context)) for context in (0, 131_072)]
    assert at[0] == pytest.approx(1_798e6, rel=0.005)
    merged = 4 * 16 * 128 * 258 * 10
    assert at[1] - at[0] == 131_072 * 20_480 + merged
    assert len(decode_stages(REAL, 256)) == 253


def test_the_real_models_prompt():
    """All matrices once but the embedding: the file's 19.5 GB without its share of that."""
    moved = sum(stage.moved_bytes for stage in prefill_stages(REAL))
    embedding = 248_320 * 2048 * 9 // 16
    assert moved + embedding == pytest.approx(19_511_107_200, rel=1e-3)


def test_a_prompts_operations_are_those_of_the_forward_pass():
    source = (ROOT / "src" / "model" / "forward.cpp").read_text("utf-8")

    def recorded(function):
        body = re.search(rf"void Forward::{function}\(.*?\n}}\n", source, re.DOTALL).group()
        return tuple(re.findall(r"ops::(\w+)\(step", body))

    first, *mixers = recorded("prefill_mixer")  # the norm stands before the choice
    assert (first, *mixers[: len(ATTENTION_PREFILL) - 1]) == ATTENTION_PREFILL
    assert (first, *mixers[len(ATTENTION_PREFILL) - 1 :]) == DELTA_PREFILL
    assert recorded("prefill_moe") == EXPERTS_PREFILL
    assert recorded("record_prefill") == ("embed_rows",)


def test_kernels_and_stages():
    stages = decode_stages(TINY, 256)
    kernels = [f"{stage.operation}_q4" for stage in stages]
    kernels[1] = "linear_gemv_norm_q4_i32x256"
    assert assign(kernels, stages) == stages
    with pytest.raises(ValueError, match="the kernels end before 'sample_draw'"):
        assign(kernels[:-1], stages)
    with pytest.raises(ValueError, match="kernel 2 is 'moe_down_q4', expected 'delta_step'"):
        assign([*kernels[:2], "moe_down_q4"], stages)
    with pytest.raises(ValueError, match="is 'embed_rows_q4', expected no more"):
        assign([*kernels, "embed_rows_q4"], stages)


def test_a_second_kernel_of_an_operation_moves_nothing_more():
    stages = prefill_stages(TINY)
    kernels = []
    for stage in stages:
        kernels.append(f"{stage.operation}_f32")
        if stage.operation == "delta_conv":
            kernels.append("delta_carry_f32")
        if stage.operation == "linear":
            kernels.append("linear_gemm_sum_f32")
    found = assign(kernels, stages)
    assert len(found) == len(kernels)
    assert sum(stage.moved_bytes for stage in found) == sum(s.moved_bytes for s in stages)
    assert {found[at].part for at, name in enumerate(kernels) if "carry" in name} == {"delta net"}


def test_rows_of_a_point():
    stages = decode_stages(TINY, 256)
    values = {ncu.TIME: 4.0, ncu.READ: 3e6, ncu.WRITTEN: 1e6}
    launches = [ncu.Launch(f"{s.operation}_q4", "8x1x1", "64x1x1", values) for s in stages]
    point = summarise(launches, stages, {"copy_gb_per_s": 4000.0})
    assert point["kernels"] == sum(row["count"] for row in point["rows"]) == len(stages)
    assert point["alone_us"] == 4.0 * len(stages)
    assert point["moved_bytes"] == sum(stage.moved_bytes for stage in stages)
    # The same kernel and grid, but of two parts of the model: two rows.
    parts = {row["part"] for row in point["rows"] if row["kernel"] == "linear_norm_q4"}
    assert parts == {"delta net", "attention"}
    unknown = summarise(launches, [], {})
    assert "moved_bytes" not in unknown
    assert unknown["gb_per_s"] == pytest.approx(1000)


STAND_IN = """#!{python}
import subprocess, sys
sys.path[:0] = {path!r}
from bench.shapes import TINY
from bench.token_bytes import decode_stages, prefill_stages
words = sys.argv[1:]
log, metrics = words[words.index("--log-file") + 1], words[words.index("--metrics") + 1].split(",")
if {broken} and len(metrics) > 3:
    sys.exit("==ERROR== Failed to find metric")
program = words[words.index("--metrics") + 2:]
subprocess.run(program, check=True)
head = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", *metrics]
rows = [head, ["", "", "", "", "", *("ns" if "time" in name else "byte" for name in metrics)]]
stages = decode_stages(TINY, 48) if "--context" in words else prefill_stages(TINY)
names = [stage.operation for stage in stages]
for place, name in enumerate(names):
    values = ["2,000"] * len(metrics)
    rows.append([str(place), "7", name + "_q4", "(64, 1, 1)", "(8, 1, 1)", *values])
with open(log, "w") as out:
    print("==PROF== Connected", file=out)
    for row in rows:
        print(",".join('"' + cell + '"' for cell in row), file=out)
"""


@pytest.mark.parametrize("broken", [False, True])
def test_the_whole_with_a_stand_in(tmp_path, monkeypatch, capsys, broken):
    stand_in = tmp_path / "ncu"
    text = STAND_IN.format(python=sys.executable, path=sys.path, broken=broken)
    stand_in.write_text(text, "utf-8")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr("bench.token_profile._limits", lambda report, device: {"copy_gb_per_s": 40})
    words = ["--model", str(shipped_model()), "--shapes", "tiny", "--device", "cpu"]
    words += ["--contexts", "48", "--prefill", "20", "--samples", "2"]
    assert command.main(["token", *words]) == 0
    out = capsys.readouterr().out
    assert "**A decode step after 48 tokens**" in out
    assert "**A prefill of 20 tokens**" in out
    assert ("with fewer counters" in out) is broken
    assert "must move is not known" not in out
    document = json.loads((tmp_path / "token.json").read_text("utf-8"))
    assert [point["phase"] for point in document["points"]] == ["prefill", "decode"]
    assert all(point["in_use_us"] > 0 for point in document["points"])
    counts = [len(prefill_stages(TINY)), len(decode_stages(TINY, 48))]
    assert [point["alone_us"] for point in document["points"]] == [2 * count for count in counts]
    assert all(point["moved_bytes"] > 0 for point in document["points"])
    rendered = token_table.lines(document)
    assert sum(line.startswith("| **all** |") for line in rendered) == 2


def test_a_program_that_hangs_is_ended(tmp_path):
    options = SimpleNamespace(model="", device="cpu", samples=1, limit=0.5, shapes="tiny")
    probe = _Probe(None, options, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="took more than its 0 s"):
        probe._call([sys.executable, "-c", "import time; time.sleep(60)"])

// How long a kernel takes in a replayed graph of 240 that follow each other: by full edges; by
// programmatic edges, where a kernel waits for the one before it by griddepcontrol; and by
// programmatic edges and a counter in memory. A kernel loads its weights (16 bytes a thread, LOADS
// times), waits, reads 8 KB that the one before it wrote, and writes as much; results are checked.
// The floor that figures of `bench gpu` stand on. Knows nothing of Lily.
//
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o chain bench/chain.cu && ./chain
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define CK(x)                                           \
  do {                                                  \
    cudaError_t err_ = (x);                             \
    if (err_ != cudaSuccess) {                          \
      printf("%s: %s\n", #x, cudaGetErrorString(err_)); \
      exit(1);                                          \
    }                                                   \
  } while (0)
enum { FULL, GDC, POLL_ACQ, POLL_SLEEP, POLL_RELAX, POLL_WARP, GDC_LATE };
struct Args {
  const uint4* w;
  const float* x;
  float* y;
  unsigned* own;
  unsigned* before;
  unsigned* older;
  unsigned target;
  int per;
};
__device__ __forceinline__ unsigned ld_acq(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ unsigned ld_rlx(const unsigned* p) {
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ float4 ld_x(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0,%1,%2,%3},[%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
template <int MODE, int LOADS>
__global__ void __launch_bounds__(256, 2) node(Args a) {
  if (MODE != FULL && MODE != GDC_LATE)
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  uint4 w[LOADS > 0 ? LOADS : 1];
#pragma unroll
  for (int i = 0; i < LOADS; ++i) {
    const uint4* p = a.w + (size_t(blockIdx.x) * LOADS + i) * 256 + threadIdx.x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
                 : "=r"(w[i].x), "=r"(w[i].y), "=r"(w[i].z), "=r"(w[i].w)
                 : "l"(p));
  }
  if (MODE == GDC || MODE == GDC_LATE) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (MODE == GDC_LATE) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (MODE == POLL_ACQ && a.before) {
    if (threadIdx.x == 0)
      while (ld_acq(a.before) < a.target) {
      }
    __syncthreads();
  }
  if (MODE == POLL_RELAX && a.before) {
    if (threadIdx.x == 0) {
      while (ld_rlx(a.before) < a.target) {
      }
      __threadfence();
    }
    __syncthreads();
  }
  if (MODE == POLL_SLEEP && a.before) {
    if (threadIdx.x == 0)
      while (ld_acq(a.before) < a.target) __nanosleep(40);
    __syncthreads();
  }
  if (MODE == POLL_WARP && a.before) {
    while (ld_acq(a.before) < a.target) {
    }
  }
  if (MODE >= POLL_ACQ && MODE <= POLL_WARP && blockIdx.x == 0 && threadIdx.x == 0) *a.older = 0;
  float4 v = ld_x(a.x + threadIdx.x * 8), u = ld_x(a.x + threadIdx.x * 8 + 4);
  float s = v.x + v.y + v.z + v.w + u.x + u.y + u.z + u.w;
  unsigned z = 0;
#pragma unroll
  for (int i = 0; i < LOADS; ++i) z |= w[i].x | w[i].y | w[i].z | w[i].w;
  s += float(z & 1u) * 1e-9f;  // weights are zero
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  __shared__ float part[8];
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < a.per) {
    float t = 0;
    for (int i = 0; i < 8; ++i) t += part[i];
    int at = blockIdx.x * a.per + threadIdx.x;
    if (at < 4096) a.y[at] = t / 2048 + 1;
  }
  if (MODE >= POLL_ACQ && MODE <= POLL_WARP) {
    if (a.per > 32)
      __syncthreads();
    else
      __syncwarp();
    if (threadIdx.x == 0)
      asm volatile("red.release.gpu.global.add.u32 [%0],1;" ::"l"(a.own) : "memory");
  }
}
template <int MODE, int LOADS>
void measure(const char* name, int grid) {
  const int N = 240;
  static uint4* w = nullptr;
  static float* x = nullptr;
  static unsigned* c = nullptr;
  const size_t W = 512u << 20;
  if (!w) {
    CK(cudaMalloc(&w, W));
    CK(cudaMemset(w, 0, W));
    CK(cudaMalloc(&x, 2 * 4096 * 4));
    CK(cudaMalloc(&c, N * 128));
  }
  CK(cudaMemset(x, 0, 2 * 4096 * 4));
  CK(cudaMemset(c, 0, N * 128));
  cudaStream_t st;
  CK(cudaStreamCreate(&st));
  cudaGraph_t g;
  cudaGraphExec_t e;
  CK(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
  for (int n = 0; n < N; ++n) {
    size_t bytes = size_t(grid) * LOADS * 4096;
    size_t slots = bytes ? W / bytes : 1;
    Args a{w + (bytes ? (n % slots) * bytes / 16 : 0),
           x + (n % 2) * 4096,
           x + ((n + 1) % 2) * 4096,
           c + n * 32,
           n ? c + (n - 1) * 32 : nullptr,
           c + ((n + N - 2) % N) * 32,
           unsigned(grid),
           std::max(8, (2048 + grid - 1) / grid)};
    cudaLaunchConfig_t cfg{};
    cfg.gridDim = grid;
    cfg.blockDim = 256;
    cfg.stream = st;
    cudaLaunchAttribute at{};
    at.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at.val.programmaticStreamSerializationAllowed = 1;
    cfg.attrs = &at;
    cfg.numAttrs = MODE == FULL || n == 0 ? 0 : 1;
    CK(cudaLaunchKernelEx(&cfg, node<MODE, LOADS>, a));
  }
  CK(cudaStreamEndCapture(st, &g));
  CK(cudaGraphInstantiate(&e, g, 0));
  cudaEvent_t b, f;
  cudaEventCreate(&b);
  cudaEventCreate(&f);
  std::vector<float> t;
  for (int r = 0; r < 25; ++r) {
    cudaEventRecord(b, st);
    CK(cudaGraphLaunch(e, st));
    cudaEventRecord(f, st);
    CK(cudaStreamSynchronize(st));
    float ms;
    cudaEventElapsedTime(&ms, b, f);
    if (r > 4) t.push_back(ms * 1e3f / N);
  }
  std::vector<float> h(4096);
  CK(cudaMemcpy(h.data(), x, 4096 * 4, cudaMemcpyDeviceToHost));
  std::sort(t.begin(), t.end());
  bool ok = true;
  for (int i = 0; i < 2048; ++i) ok &= h[i] == 25.f * N;
  printf("%-22s grid %4d  %2d loads (%5.1f MB)  %6.3f us a kernel  %6.0f GB/s  %s\n", name, grid,
         LOADS, grid * LOADS * 4096e-6, t[t.size() / 2], grid * LOADS * 4.096 / t[t.size() / 2],
         ok ? "right" : "WRONG");
  fflush(stdout);
  cudaGraphExecDestroy(e);
  cudaGraphDestroy(g);
  cudaStreamDestroy(st);
}
template <int LOADS>
void all(int grid) {
  measure<FULL, LOADS>("full edges", grid);
  measure<GDC, LOADS>("griddepcontrol", grid);
  measure<GDC_LATE, LOADS>("griddepcontrol, late", grid);
  measure<POLL_ACQ, LOADS>("counter, acquire", grid);
  measure<POLL_RELAX, LOADS>("counter, relaxed+fence", grid);
  measure<POLL_SLEEP, LOADS>("counter, sleep 40", grid);
  measure<POLL_WARP, LOADS>("counter, all threads", grid);
}
int main() {
  all<0>(132);
  all<0>(264);
  all<4>(132);
  all<9>(132);
  all<9>(256);
  all<9>(386);
  all<18>(264);
  all<4>(792);
}

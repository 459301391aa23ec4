// What this machine can do at most, measured by a process of its own: how fast threads read memory
// that no cache holds, and how many fp32 multiply-adds they do in registers.
//
//   ceilings THREADS MEGABYTES ROUNDS   prints {"read_gb_per_s": [...], "fma_gflop_per_s": [...]}
//
// One array of the given size is cut into one piece a thread; rounds of the two measurements take
// turns. Knows nothing of Lily. Compile with -O3 -march=native: vectors as wide as they are here.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float Floats __attribute__((vector_size(kBytes)));
typedef uint64_t Words __attribute__((vector_size(kBytes)));
constexpr int kLanes = kBytes / sizeof(float);
constexpr int kReadStreams = 8;
constexpr int kFmaChains = 12;  // latency times units, and they must fit 16 registers
constexpr uint64_t kFmaRepeats = 20'000'000;

std::atomic<uint64_t> sink;

uint64_t read_all(const std::byte* memory, size_t bytes) {
  const auto* words = reinterpret_cast<const Words*>(memory);
  Words sums[kReadStreams] = {};
  for (size_t i = 0; i + kReadStreams <= bytes / sizeof(Words); i += kReadStreams) {
    for (int s = 0; s < kReadStreams; ++s) sums[s] ^= words[i + s];
  }
  uint64_t all = 0;
  for (const Words& sum : sums) all ^= sum[0];
  return all;
}

uint64_t multiply_add(float seed) {
  Floats chains[kFmaChains];
  for (int c = 0; c < kFmaChains; ++c) chains[c] = Floats{} + (seed + c);
  const Floats factor = Floats{} + 0.999f, term = Floats{} + 1e-3f;
  for (uint64_t i = 0; i < kFmaRepeats; ++i) {
    for (Floats& chain : chains) chain = chain * factor + term;
  }
  float all = 0;
  for (const Floats& chain : chains) all += chain[0];
  return static_cast<uint64_t>(all);
}

// Seconds from the moment that all threads stand ready until the last is done.
double run(int num_threads, const std::function<uint64_t(int)>& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      sink.fetch_xor(work(t));
    });
  }
  while (ready.load() < num_threads) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  go.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf(i ? ", %.2f" : "%.2f", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: ceilings THREADS MEGABYTES ROUNDS\n"), 2;
  const int threads = std::atoi(argv[1]), rounds = std::atoi(argv[3]);
  if (threads < 1 || rounds < 1 || std::atoi(argv[2]) < 1) return 2;
  constexpr size_t kUnit = size_t{kReadStreams} * kBytes;
  const size_t piece = (static_cast<size_t>(std::atoi(argv[2])) << 20) / threads / kUnit * kUnit;
  std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, (piece * threads + 4095) / 4096 * 4096)),
      &std::free);
  if (!memory) return std::fprintf(stderr, "ceilings: out of memory\n"), 1;
  run(threads, [&](int t) {  // each thread touches its piece first, so that it lies near it
    for (size_t i = 0; i < piece; ++i) memory.get()[t * piece + i] = static_cast<std::byte>(i * 7);
    return uint64_t{0};
  });

  std::vector<double> read, fma;
  for (int round = 0; round < rounds; ++round) {
    const double read_s =
        run(threads, [&](int t) { return read_all(memory.get() + t * piece, piece); });
    const double fma_s = run(threads, [&](int t) { return multiply_add(0.5f + t); });
    read.push_back(piece * threads / read_s / 1e9);
    fma.push_back(2.0 * kLanes * kFmaChains * kFmaRepeats * threads / fma_s / 1e9);
  }
  std::printf("{");
  print("read_gb_per_s", read);
  std::printf(", ");
  print("fma_gflop_per_s", fma);
  std::printf("}\n");
}

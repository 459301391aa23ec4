// moe: router, expert products and their weighted sum, for one row (decode) and for many (prefill).
#include <cmath>

#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

constexpr uint64_t kGrain = 16;  // weight rows a thread takes at a time

float* floats_of(std::byte* memory) { return reinterpret_cast<float*>(memory); }

// y[i] = silu(g[i]) * u[i]
void swiglu(const float* g, const float* u, int n, float* y) {
  for_vectors(n, [&](int i, int lanes) {
    store_some(y + i, silu(load_some(g + i, lanes)) * load_some(u + i, lanes), lanes);
  });
}

// The best experts of a row of logits, and their weights: the softmax over the chosen, which is the
// softmax over all renormalised. Equal logits: the lower id wins.
struct Chosen {
  uint32_t ids[kMaxSlots];
  float weights[kMaxSlots + 1];  // the last one used is the shared expert's

  Chosen(const float* logits, uint32_t experts, uint32_t slots) {
    float best[kMaxSlots];
    uint32_t count = 0;
    for (uint32_t e = 0; e < experts; ++e) {
      if (count == slots && !(logits[e] > best[count - 1])) continue;
      uint32_t at = count < slots ? count++ : count - 1;
      for (; at > 0 && logits[e] > best[at - 1]; --at)
        best[at] = best[at - 1], ids[at] = ids[at - 1];
      best[at] = logits[e], ids[at] = e;
    }
    float total = 0.0f;
    for (uint32_t s = 0; s < slots; ++s) total += weights[s] = std::exp(best[s] - best[0]);
    for (uint32_t s = 0; s < slots; ++s) weights[s] /= total;
    weights[slots] = 1.0f / (1.0f + std::exp(-logits[experts]));
  }
};

// --- Decode
// ------------------------------------------------------------------------------------------

// Rows of one launch: the router's, the shared expert's own logit, then the shared gate/up pairs.
template <class R, class S>
void moe_router(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const Stored router = stored_at(args, 2, p.hidden, p.group_size);
  const Stored shared_router = stored_at(args, 5, p.hidden, p.group_size);
  const Stored gate = stored_at(args, 8, p.hidden, p.shared_group_size);
  const Stored up = stored_at(args, 11, p.hidden, p.shared_group_size);
  float* logits = args.at<float>(14);
  float* act = args.at<float>(15);
  const int hidden = static_cast<int>(p.hidden);
  float* normed = floats_of(args.scratch);
  float* router_scratch = normed + hidden + kLanes;
  float* shared_scratch = router_scratch + prepared_floats(hidden);
  rms_norm(args.at<const float>(0), args.at<const float>(1), hidden, p.eps, normed);
  const PreparedRow for_router = prepare_row<R>(normed, hidden, p.group_size, router_scratch);
  const PreparedRow for_shared =
      prepare_row<S>(normed, hidden, p.shared_group_size, shared_scratch);
  const uint64_t first_shared = p.experts + 1;
  args.work.for_ranges(first_shared + p.shared_width, kGrain, [&](uint64_t begin, uint64_t end) {
    const uint64_t router_end = end < p.experts ? end : p.experts;
    if (begin < router_end) {
      dot_rows<R>(router, begin, router_end - begin, for_router, logits + begin);
    }
    if (begin <= p.experts && p.experts < end) {
      dot_rows<R>(shared_router, 0, 1, for_router, logits + p.experts);
    }
    if (end > first_shared) {
      const uint64_t from = (begin > first_shared ? begin : first_shared) - first_shared;
      const uint64_t count = end - first_shared - from;
      float g[kGrain], u[kGrain];
      dot_rows<S>(gate, from, count, for_shared, g);
      dot_rows<S>(up, from, count, for_shared, u);
      swiglu(g, u, static_cast<int>(count), act + from);
    }
  });
}

template <class S>
void moe_gate_up(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const float* logits = args.at<const float>(2);
  const Stored gate = stored_at(args, 3, p.hidden, p.group_size);
  const Stored up = stored_at(args, 6, p.hidden, p.group_size);
  float* act = args.at<float>(9);
  const int hidden = static_cast<int>(p.hidden);
  float* normed = floats_of(args.scratch);
  rms_norm(args.at<const float>(0), args.at<const float>(1), hidden, p.eps, normed);
  const PreparedRow x = prepare_row<S>(normed, hidden, p.group_size, normed + hidden + kLanes);
  const Chosen chosen(logits, p.experts, p.slots);
  args.work.for_ranges(
      static_cast<uint64_t>(p.slots) * p.width, kGrain, [&](uint64_t at, uint64_t end) {
        if (at == 0) {
          std::memcpy(args.at<uint32_t>(10), chosen.ids, p.slots * sizeof(uint32_t));
          std::memcpy(args.at<float>(11), chosen.weights, (p.slots + 1) * sizeof(float));
        }
        while (at < end) {  // a range may cross from one slot into the next
          const uint64_t slot = at / p.width, row = at % p.width;
          const uint64_t left = p.width - row, count = end - at < left ? end - at : left;
          const uint64_t first =
              static_cast<uint64_t>(chosen.ids[slot]) * p.expert_stride_rows + row;
          float g[kGrain], u[kGrain];
          dot_rows<S>(gate, first, count, x, g);
          dot_rows<S>(up, first, count, x, u);
          swiglu(g, u, static_cast<int>(count), act + at);
          at += count;
        }
      });
}

template <class D, class S>
void moe_down(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const uint32_t* ids = args.at<const uint32_t>(2);
  const float* weights = args.at<const float>(3);
  const Stored down = stored_at(args, 4, p.width, p.group_size);
  const Stored shared_down = stored_at(args, 7, p.shared_width, p.shared_group_size);
  float* residual = args.at<float>(10);
  float* scratch = floats_of(args.scratch);
  PreparedRow acts[kMaxSlots];
  for (uint32_t s = 0; s < p.slots; ++s, scratch += prepared_floats(p.width)) {
    acts[s] = prepare_row<D>(args.at<const float>(0) + s * p.width, p.width, p.group_size, scratch);
  }
  const PreparedRow shared_act =
      prepare_row<S>(args.at<const float>(1), p.shared_width, p.shared_group_size, scratch);
  args.work.for_ranges(p.hidden, kGrain, [&](uint64_t begin, uint64_t end) {
    float total[kGrain], part[kGrain];
    dot_rows<S>(shared_down, begin, end - begin, shared_act, total);
    for (uint64_t i = 0; i < end - begin; ++i) total[i] *= weights[p.slots];
    for (uint32_t s = 0; s < p.slots; ++s) {
      const uint64_t first = static_cast<uint64_t>(ids[s]) * p.hidden + begin;
      dot_rows<D>(down, first, end - begin, acts[s], part);
      for (uint64_t i = 0; i < end - begin; ++i) total[i] += weights[s] * part[i];
    }
    for (uint64_t i = 0; i < end - begin; ++i) residual[begin + i] += total[i];
  });
}

// --- Prefill
// -----------------------------------------------------------------------------------------

void moe_route(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const float* logits = args.at<const float>(0);
  args.work.for_ranges(p.tokens, 8, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const Chosen chosen(logits + t * (p.experts + 1), p.experts, p.slots);
      std::memcpy(args.at<uint32_t>(1) + t * p.slots, chosen.ids, p.slots * sizeof(uint32_t));
      std::memcpy(args.at<float>(2) + t * (p.slots + 1), chosen.weights,
                  (p.slots + 1) * sizeof(float));
    }
  });
}

// A counting sort; one thread, because it is a few microseconds.
void moe_sort(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const uint32_t* ids = args.at<const uint32_t>(0);
  uint32_t* order = args.at<uint32_t>(1);
  uint32_t* offsets = args.at<uint32_t>(2);
  const uint32_t rows = p.tokens * p.slots;
  args.work.for_ranges(1, 1, [&](uint64_t, uint64_t) {
    std::memset(offsets, 0, (p.experts + 1) * sizeof(uint32_t));
    for (uint32_t i = 0; i < rows; ++i) ++offsets[ids[i]];
    uint32_t before = 0;  // counts become starts, then (after the scatter) ends
    for (uint32_t e = 0; e < p.experts; ++e) {
      const uint32_t count = offsets[e];
      offsets[e] = before;
      before += count;
    }
    for (uint32_t i = 0; i < rows; ++i) order[offsets[ids[i]]++] = i;
    for (uint32_t e = p.experts; e > 0; --e) offsets[e] = offsets[e - 1];
    offsets[0] = 0;
  });
}

// One expert's rows in a grouped product: their place in the order, and how many weight panels
// share them.
struct Group {
  const uint32_t* order;
  uint32_t begin, count;

  Group(const Args& args, size_t order_binding, uint64_t expert)
      : order(args.at<const uint32_t>(order_binding)) {
    const uint32_t* offsets = args.at<const uint32_t>(order_binding + 1);
    begin = offsets[expert];
    count = offsets[expert + 1] - begin;
  }
  uint64_t slot(int m) const { return order[begin + m]; }
};

constexpr int kGroupRows = 1024;  // rows of an expert that are multiplied before SwiGLU joins them

template <class S>
void moe_grouped_gate_up(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const float* x = args.at<const float>(0);
  const Stored gate = stored_at(args, 3, p.hidden, p.group_size);
  const Stored up = stored_at(args, 6, p.hidden, p.group_size);
  float* act = args.at<float>(9);
  const uint64_t panels = (p.width + kPanelRows - 1) / kPanelRows;
  float* g = floats_of(args.scratch);
  float* u = g + static_cast<size_t>(kGroupRows) * kPanelRows;
  float* scratch = u + static_cast<size_t>(kGroupRows) * kPanelRows;
  args.work.for_ranges(panels * p.experts, 1, [&](uint64_t unit, uint64_t) {
    const Group group(args, 1, unit / panels);
    const uint64_t column = unit % panels * kPanelRows;
    const int columns =
        static_cast<int>(p.width - column < kPanelRows ? p.width - column : kPanelRows);
    const uint64_t first = unit / panels * p.expert_stride_rows + column;
    for (int from = 0; from < static_cast<int>(group.count); from += kGroupRows) {
      const int left = static_cast<int>(group.count) - from;
      const int rows = left < kGroupRows ? left : kGroupRows;
      const auto x_of = [&](int m) { return x + group.slot(from + m) / p.slots * p.hidden; };
      multiply_panel<S>(
          gate, first, columns, rows, x_of, [&](int m) { return g + m * kPanelRows; }, false,
          scratch);
      multiply_panel<S>(
          up, first, columns, rows, x_of, [&](int m) { return u + m * kPanelRows; }, false,
          scratch);
      for (int m = 0; m < rows; ++m) {
        swiglu(g + m * kPanelRows, u + m * kPanelRows, columns,
               act + static_cast<uint64_t>(group.begin + from + m) * p.width + column);
      }
    }
  });
}

template <class S>
void moe_grouped_down(const Args& args) {
  const auto& p = args.as<MoeParams>();
  const float* act = args.at<const float>(0);
  const Stored down = stored_at(args, 3, p.width, p.group_size);
  float* y = args.at<float>(6);
  const uint64_t panels = (p.hidden + kPanelRows - 1) / kPanelRows;
  args.work.for_ranges(panels * p.experts, 1, [&](uint64_t unit, uint64_t) {
    const Group group(args, 1, unit / panels);
    const uint64_t column = unit % panels * kPanelRows;
    const uint64_t left = p.hidden - column;
    multiply_panel<S>(
        down, unit / panels * p.expert_stride_rows + column,
        static_cast<int>(left < kPanelRows ? left : kPanelRows), static_cast<int>(group.count),
        [&](int m) { return act + static_cast<uint64_t>(group.begin + m) * p.width; },
        [&](int m) { return y + group.slot(m) * p.hidden + column; }, false,
        floats_of(args.scratch));
  });
}

void moe_combine(const Args& args) {
  const auto& p = args.as<MoeParams>();
  args.work.for_ranges(p.tokens, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) {
      const float* y = args.at<const float>(0) + t * p.slots * p.hidden;
      const float* shared = args.at<const float>(1) + t * p.hidden;
      const float* weights = args.at<const float>(2) + t * (p.slots + 1);
      float* residual = args.at<float>(3) + t * p.hidden;
      for_vectors(static_cast<int>(p.hidden), [&](int i, int lanes) {
        Floats total = load_some(shared + i, lanes) * splat(weights[p.slots]);
        for (uint32_t s = 0; s < p.slots; ++s) {
          total = fma(load_some(y + s * p.hidden + i, lanes), splat(weights[s]), total);
        }
        store_some(residual + i, load_some(residual + i, lanes) + total, lanes);
      });
    }
  });
}

#define LILY_PAIRS(name, S)                                                                   \
  {"moe_router_" name "_f32", moe_router<S, StoredF32>},                                      \
      {"moe_router_" name "_bf16", moe_router<S, StoredBf16>},                                \
      {"moe_router_" name "_q8", moe_router<S, StoredQ8>},                                    \
      {"moe_router_" name "_q4", moe_router<S, StoredQ4>},                                    \
      {"moe_down_" name "_f32", moe_down<S, StoredF32>},                                      \
      {"moe_down_" name "_bf16", moe_down<S, StoredBf16>},                                    \
      {"moe_down_" name "_q8", moe_down<S, StoredQ8>},                                        \
      {"moe_down_" name "_q4", moe_down<S, StoredQ4>}, {"moe_gate_up_" name, moe_gate_up<S>}, \
      {"moe_grouped_gate_up_" name, moe_grouped_gate_up<S>}, {                                \
    "moe_grouped_down_" name, moe_grouped_down<S>                                             \
  }

constexpr NamedKernel kKernels[] = {
    LILY_PAIRS("f32", StoredF32),     LILY_PAIRS("bf16", StoredBf16), LILY_PAIRS("q8", StoredQ8),
    LILY_PAIRS("q4", StoredQ4),       {"moe_route_f32", moe_route},   {"moe_sort_u32", moe_sort},
    {"moe_combine_f32", moe_combine},
};

}  // namespace

KernelList moe_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA

// embed: token ids -> rows of the residual stream, decoded from the stored table.
#include "cpu/register.h"

namespace lily::cpu::LILY_ISA {
namespace {

template <class S>
void decode_row(const Stored& table, uint64_t id, float* out) {
  const uint8_t* row = table.row<S>(id);
  if constexpr (!S::kQuantised) {
    for_vectors(table.cols, [&](int i, int lanes) {
      store_some(out + i, load_some_weights<S>(row, i, lanes), lanes);
    });
  } else {
    for (int i = 0; i < table.cols; ++i) {
      const uint64_t group = id * table.groups() + i / table.group;
      const int code = S::kBits == 8 ? row[i] : (row[i / 2] >> (4 * (i & 1))) & 15;
      out[i] =
          bf16_at(table.scales + group) * static_cast<float>(code) + bf16_at(table.biases + group);
    }
  }
}

template <class S>
void embed_rows(const Args& args) {
  const auto& p = args.as<EmbedRowsParams>();
  const uint32_t* ids = args.at<const uint32_t>(0);
  const Stored table = stored_at(args, 1, p.hidden, p.group_size);
  float* hidden = args.at<float>(4);
  args.work.for_ranges(p.tokens, 1, [&](uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; ++t) decode_row<S>(table, ids[t], hidden + t * p.hidden);
  });
}

constexpr NamedKernel kKernels[] = {
    {"embed_rows_f32", embed_rows<StoredF32>},
    {"embed_rows_bf16", embed_rows<StoredBf16>},
    {"embed_rows_q8", embed_rows<StoredQ8>},
    {"embed_rows_q4", embed_rows<StoredQ4>},
};

}  // namespace

KernelList embed_kernels() { return kKernels; }

}  // namespace lily::cpu::LILY_ISA

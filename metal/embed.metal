// embed: token ids -> rows of the residual stream, decoded from the stored table. A threadgroup
// takes one token. Knows no layer.
#include "weights.h"

namespace lily {

enum : uint { kEmbedThreads = 256 };

// hidden[t] = table[ids[t]].   ids u32 [T], table [V, H], hidden f32 [T, H]
template <class S>
[[kernel]] void embed_rows(device const uint* ids [[buffer(0)]],
                           device const uchar* weight [[buffer(1)]],
                           device const bfloat* scales [[buffer(2)]],
                           device const bfloat* biases [[buffer(3)]],
                           device float* hidden [[buffer(4)]],
                           constant EmbedRowsParams& p [[buffer(5)]], LILY_PLACE) {
  const Stored table{weight, scales, biases, p.hidden, p.group_size};
  const Row row = row_of<S>(table, ids[group.x]);
  device float* to = hidden + ulong(group.x) * p.hidden;
  for (uint k = thread_index; k < p.hidden; k += kEmbedThreads) to[k] = weight_at<S>(row, k, table);
}

LILY_KERNEL(embed_rows_f32, 256, embed_rows<F32>)
LILY_KERNEL(embed_rows_bf16, 256, embed_rows<Bf16>)
LILY_KERNEL(embed_rows_q8, 256, embed_rows<Q8>)
LILY_KERNEL(embed_rows_q4, 256, embed_rows<Q4<4>>)

}  // namespace lily

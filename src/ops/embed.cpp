// Embedding: token ids become rows of the residual stream. Ids are device memory, so their bound is
// the engine's to check.
#include "ops/check.h"

namespace lily::ops {

void embed_rows(Step& step, const Tensor& hidden, const Tensor& ids, const Matrix& table) {
  const Check check("embed_rows");
  const uint32_t tokens = check.count("tokens", ids.dim(0));
  const uint32_t width = check.count("hidden", table.cols);
  check.u32("ids", ids, {{"tokens", tokens}});
  check.matrix("table", table, {"vocab", table.rows}, {"hidden", width});
  check.f32("hidden", hidden, {{"tokens", tokens}, {"hidden", width}});

  const EmbedRowsParams params{.tokens = tokens, .hidden = width, .group_size = table.group_size};
  step.add(kernel_name("embed_rows", table.storage), Bindings().in(ids).in(table).out(hidden),
           params, embed_grid(tokens));
}

}  // namespace lily::ops

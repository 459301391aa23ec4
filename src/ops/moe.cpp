// Mixture of experts: three fused steps for one row; route, sort, grouped products and combine for
// many. Which experts run is decided on the device and never read back.
#include "ops/check.h"

namespace lily::ops {
namespace {

// Params and checks of everything that a layer's decode reads.
MoeParams check_weights(const Check& check, const MoeWeights& moe) {
  MoeParams params{};
  params.tokens = 1;
  params.hidden = check.count("hidden", moe.router.cols);
  params.experts = check.count("experts", moe.router.rows, kMaxExperts);
  params.slots = check.count("slots", moe.slots);
  params.width = check.count("width", moe.gate.rows, kMaxExpertWidth);
  params.shared_width = check.count("shared_width", moe.shared_gate.rows, kMaxExpertWidth);
  params.expert_stride_rows = static_cast<uint32_t>(moe.gate.expert_stride_rows);
  const Extent experts{"experts", params.experts}, hidden{"hidden", params.hidden};
  const Extent width{"width", params.width}, shared_width{"shared_width", params.shared_width};
  if (params.slots > kMaxSlots || params.slots > params.experts) {
    check.fail("slots is " + std::to_string(params.slots) + ", expected up to " +
               std::to_string(kMaxSlots) + " and up to experts (" + std::to_string(params.experts) +
               ")");
  }
  check.matrix("router", moe.router, experts, hidden);
  check.matrix("shared_router", moe.shared_router, {"one row", 1}, hidden);
  check.same_storage("shared_router", moe.shared_router, "router", moe.router);
  check.stack("gate", moe.gate, experts, width, hidden);
  check.stack("up", moe.up, experts, width, hidden);
  check.same_storage("up", moe.up, "gate", moe.gate);
  check.stack("down", moe.down, experts, hidden, width);
  check.matrix("shared_gate", moe.shared_gate, shared_width, hidden);
  check.matrix("shared_up", moe.shared_up, shared_width, hidden);
  check.same_storage("shared_up", moe.shared_up, "shared_gate", moe.shared_gate);
  check.matrix("shared_down", moe.shared_down, hidden, shared_width);
  return params;
}

void check_equal_strides(const Check& check, const Matrix& gate, const Matrix& up) {
  if (gate.experts > 1 && gate.expert_stride_rows != up.expert_stride_rows) {
    check.fail("up has " + std::to_string(up.expert_stride_rows) +
               " rows between experts, expected " + std::to_string(gate.expert_stride_rows) +
               " as gate");
  }
}

void check_dense_experts(const Check& check, const Matrix& down) {
  if (down.experts > 1 && down.expert_stride_rows != down.rows) {
    check.fail("down has " + std::to_string(down.expert_stride_rows) +
               " rows between experts, expected " + std::to_string(down.rows) + " (hidden)");
  }
}

void check_order(const Check& check, const Tensor& order, const Tensor& offsets, uint32_t rows,
                 uint32_t experts) {
  check.u32("order", order, {{"tokens * slots", rows}});
  check.u32("offsets", offsets, {{"experts + 1", experts + 1ull}});
}

}  // namespace

void moe_router(Step& step, const Tensor& logits, const Tensor& shared_act, const Tensor& x,
                const Tensor& gain, float eps, const MoeWeights& moe) {
  const Check check("moe_router");
  MoeParams params = check_weights(check, moe);
  check.f32("x", x, {{"one token", 1}, {"hidden", params.hidden}});
  check.f32("gain", gain, {{"hidden", params.hidden}});
  check.eps(eps);
  check.f32("logits", logits, {{"one token", 1}, {"experts + 1", params.experts + 1ull}});
  check.f32("shared_act", shared_act, {{"one token", 1}, {"shared_width", params.shared_width}});

  params.group_size = moe.router.group_size;
  params.shared_group_size = moe.shared_gate.group_size;
  params.eps = eps;
  step.add(kernel_name("moe_router", moe.router.storage, moe.shared_gate.storage),
           Bindings()
               .in(x)
               .in(gain)
               .in(moe.router)
               .in(moe.shared_router)
               .in(moe.shared_gate)
               .in(moe.shared_up)
               .out(logits)
               .out(shared_act),
           params, moe_router_grid(step.tiles(), moe));
}

void moe_gate_up(Step& step, const Tensor& act, const Tensor& ids, const Tensor& weights,
                 const Tensor& logits, const Tensor& x, const Tensor& gain, float eps,
                 const MoeWeights& moe) {
  const Check check("moe_gate_up");
  MoeParams params = check_weights(check, moe);
  check_equal_strides(check, moe.gate, moe.up);
  check.f32("x", x, {{"one token", 1}, {"hidden", params.hidden}});
  check.f32("gain", gain, {{"hidden", params.hidden}});
  check.eps(eps);
  check.f32("logits", logits, {{"one token", 1}, {"experts + 1", params.experts + 1ull}});
  check.f32("act", act, {{"slots", params.slots}, {"width", params.width}});
  check.u32("ids", ids, {{"one token", 1}, {"slots", params.slots}});
  check.f32("weights", weights, {{"one token", 1}, {"slots + 1", params.slots + 1ull}});

  params.group_size = moe.gate.group_size;
  params.eps = eps;
  step.add(
      kernel_name("moe_gate_up", moe.gate.storage),
      Bindings().in(x).in(gain).in(logits).in(moe.gate).in(moe.up).out(act).out(ids).out(weights),
      params, moe_gate_up_grid(step.tiles(), moe));
}

void moe_down(Step& step, const Tensor& residual, const Tensor& act, const Tensor& shared_act,
              const Tensor& logits, const Tensor& ids, const Tensor& weights,
              const MoeWeights& moe) {
  const Check check("moe_down");
  MoeParams params = check_weights(check, moe);
  check_dense_experts(check, moe.down);
  check.f32("residual", residual, {{"one token", 1}, {"hidden", params.hidden}});
  check.f32("act", act, {{"slots", params.slots}, {"width", params.width}});
  check.f32("shared_act", shared_act, {{"one token", 1}, {"shared_width", params.shared_width}});
  check.f32("logits", logits, {{"one token", 1}, {"experts + 1", params.experts + 1ull}});
  check.u32("ids", ids, {{"one token", 1}, {"slots", params.slots}});
  check.f32("weights", weights, {{"one token", 1}, {"slots + 1", params.slots + 1ull}});

  params.group_size = moe.down.group_size;
  params.shared_group_size = moe.shared_down.group_size;
  step.add(kernel_name("moe_down", moe.down.storage, moe.shared_down.storage),
           Bindings()
               .in(act)
               .in(shared_act)
               .in(ids)
               .in(weights)
               .in(moe.down)
               .in(moe.shared_down)
               .inout(residual)
               .in(logits),
           params, moe_down_grid(step.tiles(), moe));
}

void moe_route(Step& step, const Tensor& ids, const Tensor& weights, const Tensor& logits) {
  const Check check("moe_route");
  const uint32_t tokens = check.count("tokens", logits.dim(0));
  const uint32_t slots = check.count("slots", ids.dim(1));
  const uint32_t columns = check.count("experts + 1", logits.dim(1), kMaxExperts + 1ull);
  if (slots > kMaxSlots || slots >= columns) {
    check.fail("ids has " + std::to_string(slots) + " slots, expected up to " +
               std::to_string(kMaxSlots) + " and up to experts (" + std::to_string(columns - 1) +
               ")");
  }
  check.f32("logits", logits, {{"tokens", tokens}, {"experts + 1", columns}});
  check.u32("ids", ids, {{"tokens", tokens}, {"slots", slots}});
  check.f32("weights", weights, {{"tokens", tokens}, {"slots + 1", slots + 1ull}});

  MoeParams params{};
  params.tokens = tokens;
  params.experts = columns - 1;
  params.slots = slots;
  step.add(kernel_name("moe_route", DType::f32), Bindings().in(logits).out(ids).out(weights),
           params, moe_route_grid(tokens));
}

void moe_sort(Step& step, const Tensor& order, const Tensor& offsets, const Tensor& ids) {
  const Check check("moe_sort");
  const uint32_t tokens = check.count("tokens", ids.dim(0));
  const uint32_t slots = check.count("slots", ids.dim(1));
  const uint32_t rows = check.count("tokens * slots", uint64_t{tokens} * slots);
  const uint32_t experts =
      check.count("experts", offsets.dim(0) - (offsets.dim(0) > 0), kMaxExperts);
  check.u32("ids", ids, {{"tokens", tokens}, {"slots", slots}});
  check.u32("order", order, {{"tokens * slots", rows}});
  check.u32("offsets", offsets, {{"experts + 1", experts + 1ull}});

  MoeParams params{};
  params.tokens = tokens;
  params.experts = experts;
  params.slots = slots;
  step.add(kernel_name("moe_sort", DType::u32), Bindings().in(ids).out(order).out(offsets), params,
           moe_sort_grid());
}

void moe_grouped_gate_up(Step& step, const Tensor& act, const Tensor& x, const Tensor& order,
                         const Tensor& offsets, const Matrix& gate, const Matrix& up,
                         uint32_t slots) {
  const Check check("moe_grouped_gate_up");
  const uint32_t tokens = check.count("tokens", x.dim(0));
  const uint32_t hidden = check.count("hidden", x.dim(1));
  const uint32_t experts = check.count("experts", gate.experts);
  const uint32_t width = check.count("width", gate.rows);
  const uint32_t rows =
      check.count("tokens * slots", uint64_t{tokens} * check.count("slots", slots));
  check.activation("x", x, {{"tokens", tokens}, {"hidden", hidden}});
  check.activation("act", act, {{"tokens * slots", rows}, {"width", width}});
  if (act.dtype != x.dtype) {
    check.fail(std::string("act is ") + dtype_name(act.dtype) + ", expected " +
               dtype_name(x.dtype) + " as x");
  }
  check_order(check, order, offsets, rows, experts);
  check.stack("gate", gate, {"experts", experts}, {"width", width}, {"hidden", hidden});
  check.stack("up", up, {"experts", experts}, {"width", width}, {"hidden", hidden});
  check.same_storage("up", up, "gate", gate);
  check_equal_strides(check, gate, up);

  MoeParams params{};
  params.tokens = tokens;
  params.hidden = hidden;
  params.experts = experts;
  params.slots = slots;
  params.width = width;
  params.group_size = gate.group_size;
  params.expert_stride_rows = static_cast<uint32_t>(gate.expert_stride_rows);
  step.add(kernel_name("moe_grouped_gate_up", gate.storage) + activation_suffix(x.dtype),
           Bindings().in(x).in(order).in(offsets).in(gate).in(up).out(act), params,
           grouped_grid(step.tiles(), gate, x.dtype, rows, 2));
}

void moe_grouped_down(Step& step, const Tensor& y, const Tensor& act, const Tensor& order,
                      const Tensor& offsets, const Matrix& down) {
  const Check check("moe_grouped_down");
  const uint32_t rows = check.count("tokens * slots", act.dim(0));
  const uint32_t width = check.count("width", act.dim(1));
  const uint32_t experts = check.count("experts", down.experts);
  const uint32_t hidden = check.count("hidden", down.rows);
  check.activation("act", act, {{"tokens * slots", rows}, {"width", width}});
  check.f32("y", y, {{"tokens * slots", rows}, {"hidden", hidden}});
  check_order(check, order, offsets, rows, experts);
  check.stack("down", down, {"experts", experts}, {"hidden", hidden}, {"width", width});
  check_dense_experts(check, down);

  // Rows are all that this kernel knows: whose slots they are does not matter to it.
  MoeParams params{};
  params.tokens = rows;
  params.hidden = hidden;
  params.experts = experts;
  params.slots = 1;
  params.width = width;
  params.group_size = down.group_size;
  params.expert_stride_rows = hidden;
  step.add(kernel_name("moe_grouped_down", down.storage) + activation_suffix(act.dtype),
           Bindings().in(act).in(order).in(offsets).in(down).out(y), params,
           grouped_grid(step.tiles(), down, act.dtype, rows, 1));
}

void moe_combine(Step& step, const Tensor& residual, const Tensor& y, const Tensor& shared,
                 const Tensor& weights) {
  const Check check("moe_combine");
  const uint32_t tokens = check.count("tokens", residual.dim(0));
  const uint32_t hidden = check.count("hidden", residual.dim(1));
  const uint32_t slots = check.count("slots", weights.dim(1) - (weights.dim(1) > 0));
  const uint64_t rows = uint64_t{tokens} * slots;
  check.f32("residual", residual, {{"tokens", tokens}, {"hidden", hidden}});
  check.f32("y", y, {{"tokens * slots", rows}, {"hidden", hidden}});
  check.f32("shared", shared, {{"tokens", tokens}, {"hidden", hidden}});
  check.f32("weights", weights, {{"tokens", tokens}, {"slots + 1", slots + 1ull}});

  MoeParams params{};
  params.tokens = tokens;
  params.hidden = hidden;
  params.slots = slots;
  step.add(kernel_name("moe_combine", DType::f32),
           Bindings().in(y).in(shared).in(weights).inout(residual), params,
           combine_grid(tokens, hidden));
}

}  // namespace lily::ops

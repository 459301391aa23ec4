// See plan.h.
#include "engine/plan.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace lily {
namespace {

constexpr uint64_t kLargestDefaultCache = uint64_t{2} << 30;
constexpr uint32_t kContextStep = 256;  // chosen contexts are round numbers, and not smaller

uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// Everything but KV caches and prefix cache.
struct Fixed {
  uint64_t mapped, allocated;
};
Fixed fixed_part(const PlanInput& input) {
  return {input.mapped_bytes, input.copied_bytes + input.state_bytes + input.scratch_bytes};
}

// Bytes that may still be allocated beside `taken` allocated ones.
uint64_t room(const PlanInput& input, const PlanRequest& request, uint64_t limit, uint64_t taken) {
  const uint64_t below_limit = minus(limit, input.mapped_bytes + taken);
  if (request.memory_limit_bytes != 0) return below_limit;
  return std::min(below_limit, minus(input.memory_available_bytes, taken));
}

uint32_t largest_context(const PlanInput& input, uint64_t bytes) {
  if (input.kv_bytes_per_token == 0) return input.max_positions;
  const uint64_t tokens = std::min<uint64_t>(bytes / input.kv_bytes_per_token, input.max_positions);
  const bool whole = tokens == input.max_positions || tokens < kContextStep;
  return static_cast<uint32_t>(whole ? tokens : tokens / kContextStep * kContextStep);
}

[[noreturn]] void refuse(const PlanInput& input, const PlanRequest& request, uint64_t limit,
                         uint32_t context, uint64_t cache, uint32_t largest) {
  const Fixed fixed = fixed_part(input);
  const uint64_t kv = input.kv_bytes_per_token * context;
  const uint64_t allocated = fixed.allocated + kv + cache;
  std::string text = "does not fit: " + human_bytes(fixed.mapped + allocated) + " are needed, ";
  if (request.memory_limit_bytes != 0) {
    text += human_bytes(limit) + " are allowed (memory_limit_bytes)";
  } else if (fixed.mapped + allocated > limit) {
    text += "the machine has " + human_bytes(limit);
  } else {
    text += human_bytes(allocated) + " of them to be allocated, of which " +
            human_bytes(input.memory_available_bytes) + " are free now";
  }
  text += ": weights " + human_bytes(input.mapped_bytes) + " in place and " +
          human_bytes(input.copied_bytes) + " converted, KV cache " + human_bytes(kv) + " for " +
          grouped(context) + " tokens, recurrent state and rows " + human_bytes(input.state_bytes) +
          ", scratch " + human_bytes(input.scratch_bytes) + ", prefix cache " + human_bytes(cache) +
          ". ";
  text += largest > 0 ? "The largest context that fits is " + grouped(largest) + " tokens"
                      : "No context fits";
  if (request.memory_limit_bytes == 0) text += "; memory_limit_bytes overrides this check";
  throw OutOfMemory(text);
}

}  // namespace

MemoryPlan make_plan(const PlanInput& input, const PlanRequest& request) {
  if (request.max_context > input.max_positions) {
    throw InvalidInput("max_context is " + grouped(request.max_context) +
                       ", the model has positions for " + grouped(input.max_positions));
  }
  const uint64_t limit =
      request.memory_limit_bytes != 0 ? request.memory_limit_bytes : input.memory_total_bytes;
  const Fixed fixed = fixed_part(input);
  const uint64_t asked_cache =
      request.cache_bytes < 0 ? 0 : static_cast<uint64_t>(request.cache_bytes);
  // What fits beside the fixed part; nothing, if that part alone is too large.
  const uint64_t bytes = room(input, request, limit, fixed.allocated + asked_cache);
  const bool any_room = bytes > 0 && fixed.mapped + fixed.allocated + asked_cache <= limit;
  const uint32_t largest = any_room ? largest_context(input, bytes) : 0;

  const uint32_t wanted = request.max_context != 0 ? request.max_context
                                                   : std::min(input.max_positions, kDefaultContext);
  const uint32_t least = request.max_context != 0 ? wanted : std::min(wanted, kContextStep);
  if (largest < least) refuse(input, request, limit, wanted, asked_cache, largest);

  MemoryPlan plan;
  plan.max_context = std::min(wanted, largest);
  plan.weights_bytes = input.mapped_bytes + input.copied_bytes;
  plan.kv_bytes = input.kv_bytes_per_token * plan.max_context;
  plan.state_bytes = input.state_bytes;
  plan.scratch_bytes = input.scratch_bytes;
  plan.cache_bytes = asked_cache;
  if (request.cache_bytes < 0) {
    const uint64_t left = room(input, request, limit, fixed.allocated + plan.kv_bytes);
    plan.cache_bytes = std::min(left / 8, kLargestDefaultCache);
  }
  plan.limit_bytes = limit;
  plan.total_bytes =
      plan.weights_bytes + plan.kv_bytes + plan.state_bytes + plan.scratch_bytes + plan.cache_bytes;
  return plan;
}

}  // namespace lily

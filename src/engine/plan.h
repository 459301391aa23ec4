// What a model needs in memory, decided before anything is allocated, and refused with the numbers
// where it does not fit. Pure arithmetic: knows no device and no file.
#pragma once

#include <cstdint>

namespace lily {

// What the caller asks for; 0 (cache: -1) leaves the choice to the plan.
struct PlanRequest {
  uint32_t max_context = 0;
  int64_t cache_bytes = -1;
  uint64_t memory_limit_bytes = 0;
};

// What model and machine are like.
struct PlanInput {
  uint64_t mapped_bytes = 0;  // weights read in place
  uint64_t copied_bytes = 0;  // weights converted at load
  uint64_t kv_bytes_per_token = 0;
  uint64_t state_bytes = 0;    // of a session, whatever its context
  uint64_t scratch_bytes = 0;  // of a prefill chunk, shared by all sessions
  uint32_t max_positions = 0;
  uint64_t memory_total_bytes = 0;
  uint64_t memory_available_bytes = 0;
};

struct MemoryPlan {
  uint64_t weights_bytes = 0;  // mapped and copied
  uint64_t kv_bytes = 0;       // of one session at max_context
  uint64_t state_bytes = 0;
  uint64_t scratch_bytes = 0;
  uint64_t cache_bytes = 0;  // budget of the prefix cache
  uint64_t total_bytes = 0;  // of all the above
  uint64_t limit_bytes = 0;
  uint32_t max_context = 0;
};

// The context that is chosen where nobody asks: more costs memory that most sessions never use.
inline constexpr uint32_t kDefaultContext = 32768;

// The limit is what the caller gave, else the machine's memory; and, unless the caller gave one,
// what is allocated (all but the mapped weights, which the system can drop and read again) must fit
// into the memory that is available now.
// max_context 0: the smallest of the model's positions, kDefaultContext, and what fits.
// cache_bytes -1: an eighth of what remains, at most 2 GiB.
// Throws OutOfMemory with every part and the largest context that fits, and InvalidInput for a
// context beyond the model's positions.
MemoryPlan make_plan(const PlanInput& input, const PlanRequest& request);

}  // namespace lily

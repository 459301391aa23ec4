// See describe.h.
#include "model/describe.h"

#include <utility>

#include "model/arena.h"
#include "model/checkpoint.h"
#include "model/state.h"

namespace lily {

Description describe(const std::filesystem::path& folder) {
  CheckpointInspection inspection = Checkpoint::inspect(folder);
  Description result;
  result.problems = std::move(inspection.problems);
  result.config = std::move(inspection.config);
  if (result.config) {
    Arena counter(nullptr);
    const SessionState state(counter, *result.config, DType::bf16, 0, 1);
    result.kv_bytes_per_token = kv_bytes_per_token(*result.config, DType::bf16);
    result.state_bytes = state.recurrent_bytes();
  }
  if (inspection.checkpoint) {
    result.weights =
        inspect_weights(*inspection.checkpoint, CheckDepth::headers, 1);  // as on a CPU
    const std::vector<std::string>& found = result.weights->problems;
    result.problems.insert(result.problems.end(), found.begin(), found.end());
  }
  return result;
}

}  // namespace lily

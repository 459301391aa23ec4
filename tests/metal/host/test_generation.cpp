// The engine on the Metal device with the real kernels: a small random model, its tokens against
// the device "fibers", which runs the same kernels without any of Metal. In builds with fibers, and
// so under the address sanitizer.
#if defined(LILY_HAS_FIBERS)

#include "../../native/models.h"
#include "engine/engine.h"
#include "probes.h"
#include "state.h"

namespace lily {
namespace {

using namespace test;

// Prefill in two chunks, then steps that feed themselves.
std::vector<uint32_t> generate(const std::filesystem::path& folder, const char* device) {
  EngineOptions options;
  options.device = device;
  options.max_context = 64;
  options.chunk_tokens = 20;
  options.threads = 1;
  const auto engine = Engine::load(folder, options);
  const auto session = engine->open_session(0);
  std::vector<uint32_t> prompt;
  for (uint32_t token = 0; token < 29; ++token) prompt.push_back(token * 7 % 211);
  session->prefill(prompt, {});
  std::vector<uint32_t> tokens{session->sampled().token_id};
  for (int step = 0; step < 6; ++step) {  // the last ones are begun ahead
    tokens.push_back(session->step(tokens.back(), nullptr).token_id);
  }
  return tokens;
}

TEST(metal_generates_what_the_kernels_give) {
  Machine machine;
  machine.settings.most_delay_us = 200;
  simulated::set_executor(simulated::default_executor());
  ::setenv("HOME", machine.folder.path().c_str(), 1);
  const Folder folder;
  write_model(folder, config_text(64, 4, 2, 64, 5, 3, 64, 211, 128), Fill::random);
  CHECK(generate(folder.path(), "metal") == generate(folder.path(), "fibers"));
  simulated::set_executor(std::make_shared<ProbeExecutor>());
}

}  // namespace
}  // namespace lily

#endif

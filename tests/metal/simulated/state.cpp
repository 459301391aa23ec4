// See simulated.h and state.h: settings, from the environment or a test; and what happened.
#include "state.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "objc_runtime.h"

namespace lily::simulated {
namespace {

std::mutex mutex;
Statistics happened;
// Never destroyed: a process may end with a device open.
std::shared_ptr<Executor>& the_executor() {
  static auto* held = new std::shared_ptr<Executor>(default_executor());
  return *held;
}

Settings the_settings{.is_there = false};

// "seed=3,family=7": what tests in Python set.
Settings parse(const char* text) {
  Settings made;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const int value = equals == std::string::npos ? 0 : std::atoi(word.c_str() + equals + 1);
    if (name == "seed") made.seed = static_cast<uint64_t>(value);
    if (name == "family") made.family = value;
    if (name == "os") made.os_major = value;
    if (name == "fail_at") made.fail_at = value;
    if (name == "fail_code") made.fail_code = value;
    if (name == "delay_us") made.most_delay_us = static_cast<uint32_t>(value);
  }
  return made;
}

}  // namespace

Settings& settings() { return the_settings; }

void read_environment() {
  static bool was_set = false;
  const char* text = std::getenv("LILY_SIMULATED_METAL");
  if (text != nullptr) the_settings = parse(text);
  if (text == nullptr && was_set) the_settings = {.is_there = false};
  was_set = text != nullptr;
}

Statistics statistics() {
  std::lock_guard lock(mutex);
  return happened;
}

void reset() {
  settings() = Settings();
  std::lock_guard lock(mutex);
  auto alive = std::move(happened.alive);
  happened = Statistics();
  happened.alive = std::move(alive);
}

void set_executor(std::shared_ptr<Executor> executor) { the_executor() = std::move(executor); }

Executor& executor() {
  if (!the_executor()) violate("nothing runs kernels here");
  return *the_executor();
}

void note(const std::function<void(Statistics&)>& change) {
  std::lock_guard lock(mutex);
  change(happened);
}
void note_violation(const std::string& rule) {
  std::fprintf(stderr, "simulated Metal: %s\n", rule.c_str());
  note([&](Statistics& all) { all.violations.push_back(rule); });
}
void count_alive(const std::string& class_name, int change) {
  note([&](Statistics& all) {
    if ((all.alive[class_name] += change) == 0) all.alive.erase(class_name);
  });
}

}  // namespace lily::simulated

// Inside the simulated Metal only: what its files write into the statistics, and what they share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "simulated.h"

namespace lily::simulated {

// All guarded by one mutex, held for a moment.
void note_violation(const std::string& rule);
void count_alive(const std::string& class_name, int change);
void note(const std::function<void(Statistics&)>& change);

Executor& executor();
std::shared_ptr<Executor> default_executor();  // null where a build has none

// Takes the settings of LILY_SIMULATED_METAL, where that is set.
void read_environment();

// Of the innermost pool of this thread.
void begin_pool();
void end_pool();

}  // namespace lily::simulated

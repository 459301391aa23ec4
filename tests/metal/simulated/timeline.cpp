// See timeline.h.
#include "timeline.h"

#include <algorithm>
#include <chrono>

#include "state.h"

namespace lily::simulated {
namespace {

constexpr uint32_t kMostBuffers = 64;  // that a queue holds by default
constexpr size_t kPassesRemembered = 16;
constexpr int kTellers = 2;
constexpr intptr_t kInternal = 1, kInvalidResource = 9;  // MTLCommandBufferError

// What a failing command buffer says.
struct GpuFault {
  std::string text;
  intptr_t code;
};

// The part of a block that calling it needs.
struct Block {
  void* isa;
  int flags, reserved;
  void (*invoke)(Block*, CommandBuffer*);
};

}  // namespace

extern "C" void _Block_release(const void* block);

Timeline::Timeline() : random_(settings().seed) {}

void Timeline::begin() {
  const auto self = shared_from_this();  // each thread holds it
  threads_.emplace_back([self] { self->run_gpu(); });
  for (int teller = 0; teller < kTellers; ++teller) {
    threads_.emplace_back([self] { self->tell_completions(); });
  }
}

void Timeline::end() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void Timeline::take_slot() {
  std::unique_lock lock(mutex_);
  const bool got_one =
      changed_.wait_for(lock, std::chrono::seconds(5), [&] { return slots_taken_ < kMostBuffers; });
  if (!got_one) violate("the queue has 64 command buffers, and none of them ends");
  ++slots_taken_;
}

void Timeline::give_slot_back() {
  {
    std::lock_guard lock(mutex_);
    --slots_taken_;
  }
  changed_.notify_all();
}

void Timeline::commit(Held<CommandBuffer> buffer) {
  {
    std::lock_guard lock(mutex_);
    committed_.push_back(std::move(buffer));
  }
  changed_.notify_all();
}

void Timeline::number(Pass& pass) {
  std::lock_guard lock(mutex_);
  pass.id = ++last_pass_;
  pass.begun_after = told_up_to_;
}

void Timeline::note_told(const CommandBuffer& buffer) {
  std::lock_guard lock(mutex_);
  for (const Pass& pass : buffer.passes) told_.insert(pass.id);
  while (told_.erase(told_up_to_ + 1) != 0) ++told_up_to_;
}

uint32_t Timeline::draw(uint32_t limit) {
  std::lock_guard lock(random_mutex_);
  return limit == 0 ? 0 : static_cast<uint32_t>(random_() % limit);
}

void Timeline::delay() {
  std::this_thread::sleep_for(std::chrono::microseconds(draw(settings().most_delay_us)));
}

void Timeline::run_gpu() {
  for (;;) {
    Held<CommandBuffer> buffer;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || !committed_.empty(); });
      if (committed_.empty()) break;
      buffer = std::move(committed_.front());
      committed_.pop_front();
    }
    delay();
    run(*buffer.get(), num_run_++);
    std::lock_guard lock(mutex_);
    finished_.push_back(std::move(buffer));
    changed_.notify_all();
  }
  std::lock_guard lock(mutex_);
  gpu_has_ended_ = true;
  changed_.notify_all();
}

void Timeline::tell_completions() {
  for (;;) {
    Held<CommandBuffer> buffer;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return gpu_has_ended_ || !finished_.empty(); });
      if (finished_.empty()) return;
      buffer = std::move(finished_.front());
      finished_.pop_front();
    }
    delay();
    give_slot_back();
    note_told(*buffer.get());
    // What Metal's own thread has around a handler.
    begin_pool();
    for (void* handler : buffer->handlers) {
      static_cast<Block*>(handler)->invoke(static_cast<Block*>(handler), buffer.get());
      _Block_release(handler);
    }
    buffer->handlers.clear();
    end_pool();
  }
}

void Timeline::run(CommandBuffer& buffer, uint64_t index) {
  buffer.begin_s = now_s_;
  begin_pool();
  try {
    if (settings().fail_at >= 0 && index == static_cast<uint64_t>(settings().fail_at)) {
      throw GpuFault{"the simulated GPU failed as it was told to", settings().fail_code};
    }
    for (const Pass& pass : buffer.passes) run_pass(pass, index);
    buffer.status = Status::completed;
  } catch (const GpuFault& fault) {
    buffer.error = Held<Error>(make_error(fault.text, fault.code));
    buffer.status = Status::failed;
  } catch (const std::exception& error) {  // of the executor
    buffer.error = Held<Error>(make_error(error.what(), kInternal));
    buffer.status = Status::failed;
  }
  end_pool();
  buffer.end_s = now_s_;
}

void Timeline::order_after_fences(RunPass& run, const Pass& pass) {
  for (const Fence* fence : pass.waits) {
    if (!fence->updated_by) continue;
    const auto before = std::ranges::find(recent_, *fence->updated_by, &RunPass::id);
    if (before == recent_.end()) continue;
    run.all_up_to = std::max(run.all_up_to, before->all_up_to);
    run.also.insert(before->also.begin(), before->also.end());
    run.also.insert(before->id);
  }
  while (run.also.erase(run.all_up_to + 1) != 0) ++run.all_up_to;
  if (!pass.waits.empty()) note([](Statistics& all) { ++all.passes_that_waited; });
}

void Timeline::run_pass(const Pass& pass, uint64_t buffer) {
  RunPass run;
  run.id = pass.id;
  run.all_up_to = pass.begun_after;
  order_after_fences(run, pass);
  std::vector<Use> since_barrier;
  for (size_t begin = 0; begin < pass.commands.size();) {
    // The dispatches up to the next barrier, in any order.
    std::vector<const Command*> batch;
    size_t end = begin;
    while (end < pass.commands.size() && !pass.commands[end].is_barrier) {
      batch.push_back(&pass.commands[end++]);
    }
    for (size_t left = batch.size(); pass.is_concurrent && left > 1; --left) {
      std::swap(batch[left - 1], batch[draw(static_cast<uint32_t>(left))]);
    }
    for (const Command* command : batch) {
      const std::vector<Use> uses = run_dispatch(*command, buffer);
      if (pass.is_concurrent) check_conflict(uses, since_barrier, "with no barrier between");
      since_barrier.insert(since_barrier.end(), uses.begin(), uses.end());
    }
    run.uses.insert(run.uses.end(), since_barrier.begin(), since_barrier.end());
    since_barrier.clear();
    begin = end + 1;
  }
  for (const RunPass& other : recent_) {
    if (!run.comes_after(other.id)) check_conflict(run.uses, other.uses, "with no fence between");
  }
  for (Fence* fence : pass.updates) fence->updated_by = pass.id;
  recent_.push_back(std::move(run));
  if (recent_.size() > kPassesRemembered) recent_.pop_front();
}

void Timeline::check_conflict(const std::vector<Use>& mine, const std::vector<Use>& theirs,
                              const char* what) const {
  for (const Use& a : mine) {
    for (const Use& b : theirs) {
      const bool overlap = a.touched.begin < b.touched.end && b.touched.begin < a.touched.end;
      if (!overlap || (!a.touched.written && !b.touched.written)) continue;
      const std::string text =
          "hazard: kernels " + b.kernel + " and " + a.kernel + " touch the same bytes, " + what;
      note_violation(text);
      throw GpuFault{text, kInternal};
    }
  }
}

std::vector<Timeline::Use> Timeline::run_dispatch(const Command& command, uint64_t buffer) {
  Launch launch;
  launch.kernel = command.pipeline->name;
  const Size &groups = command.groups, &threads = command.threads;
  const uintptr_t extents[2][3] = {{groups.width, groups.height, groups.depth},
                                   {threads.width, threads.height, threads.depth}};
  for (int axis = 0; axis < 3; ++axis) {
    launch.groups[axis] = static_cast<uint32_t>(extents[0][axis]);
    launch.threads[axis] = static_cast<uint32_t>(extents[1][axis]);
  }
  for (const BoundBuffer& bound : command.buffers) {
    if (!bound.bytes.empty()) {
      launch.params = bound.bytes;
    } else if (bound.buffer == nullptr) {
      launch.buffers.push_back({nullptr, 0});
    } else if (!is_alive(bound.buffer)) {
      const std::string text = "kernel " + launch.kernel + " uses a buffer that was freed";
      note_violation(text);
      throw GpuFault{text, kInvalidResource};
    } else {
      launch.buffers.push_back(
          {bound.buffer->memory + bound.offset, bound.buffer->bytes - bound.offset});
    }
  }
  const uint64_t num_groups = groups.width * groups.height * groups.depth;
  now_s_ += static_cast<double>(num_groups) * settings().us_per_group * 1e-6;
  std::vector<Use> uses;
  for (const Touched& touched : executor().run(launch)) uses.push_back({touched, launch.kernel});
  note([&](Statistics& all) {
    Ran ran{launch.kernel, {}, {}, buffer};
    std::ranges::copy(launch.groups, ran.groups);
    std::ranges::copy(launch.threads, ran.threads);
    all.ran.push_back(std::move(ran));
  });
  return uses;
}

}  // namespace lily::simulated

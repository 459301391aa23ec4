// See runner.h. Threads switch to one another directly; the host's stack is left once and comes
// back when the last thread is done or the first has failed. A failed threadgroup's stacks are
// abandoned: kernels own nothing that would need an end.
#include "device/fibers/runner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "device/fibers/source_lines.h"

namespace lily::fibers {
namespace {

// After how many meetings, on average, a simdgroup makes way for another.
constexpr uint32_t kMeetingsPerTurn = 4;

constexpr uint32_t kOrdersThreadgroupMemory = 2;  // metal::mem_flags::mem_threadgroup

// The sizes that nearly all operations have, without a call.
inline void copy_value(std::byte* to, const std::byte* from, uint32_t bytes) {
  switch (bytes) {
    case 0: return;
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    case 24: std::memcpy(to, from, 24); return;
    default: std::memcpy(to, from, bytes);
  }
}

std::string count_of(uint32_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

constinit thread_local Runner* running_here = nullptr;

// xorshift64*: quick, and the same on every machine.
uint32_t Runner::draw(uint32_t limit) {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return static_cast<uint32_t>(((random_ * 0x2545F4914F6CDD1Du) >> 32) * limit >> 32);
}

void Runner::prepare(const Job& job, const uint32_t (&group)[3]) {
  job_ = &job;
  std::copy_n(group, 3, group_);
  num_threads_ = job.kernel->threads;
  num_done_ = num_at_barrier_ = 0;
  random_ = (job.seed + group[0] + uint64_t{group[1]} * 0x9E3779B97F4A7C15u +
             uint64_t{group[2]} * 0xC2B2AE3D27D4EB4Fu) |
            1;
  for (int warm_up = 0; warm_up < 4; ++warm_up) draw(1);
  stacks_.allocate(num_threads_);
  memory_.reset();
  hot_[0] = hot_[1] = {};
  if (fibers_.size() < num_threads_) fibers_.resize(num_threads_);
  const uint32_t num_simdgroups = num_threads_ / kLanes;
  if (simdgroups_.size() < num_simdgroups) simdgroups_.resize(num_simdgroups);
  ready_simdgroups_ = static_cast<uint32_t>((uint64_t{1} << num_simdgroups) - 1);
  for (uint32_t s = 0; s < num_simdgroups; ++s) {
    Simdgroup& simdgroup = simdgroups_[s];
    simdgroup.ready = kAll;
    simdgroup.num_meeting = 0;
    for (uint8_t turn = 0; turn < kLanes; ++turn) simdgroup.order[turn] = turn;
    for (uint32_t turn = kLanes - 1; turn > 0; --turn) {
      std::swap(simdgroup.order[turn], simdgroup.order[draw(turn + 1)]);
    }
    for (uint8_t turn = 0; turn < kLanes; ++turn) {
      const uint32_t lane = simdgroup.order[turn], index = s * kLanes + lane;
      Fiber& fiber = fibers_[index];
      start_on(fiber.context, stacks_[index], &Runner::fiber_entry);
      fiber.launch = {nullptr, job.params.data(), {group[0], group[1], group[2]}, index, lane, s};
      fiber.turn = turn;
    }
  }
}

void Runner::run(const Job& job, const uint32_t (&group)[3]) {
  prepare(job, group);
  failure_ = {};
  fault_ = {};
  current_ = other_simdgroup();
  running_here = this;
  on_fiber_ = true;
  switch_to(host_, current_->context);
  on_fiber_ = false;
  running_here = nullptr;
  if (failure_.fiber != nullptr || fault_.signal != 0) throw_failure();
}

void Runner::fiber_entry() {
  Runner& self = *running_here;
  Fiber& fiber = *self.current_;
  arrive_first(fiber.context);
  // On the fiber's own stack, for kernels may not read the runner's memory.
  uint64_t buffers[kMaxBindings];
  std::ranges::copy(self.job_->buffers, buffers);
  Launch launch = fiber.launch;
  launch.buffers = buffers;
  self.job_->kernel->run(&launch);
  ++self.num_done_;
  self.pause(fiber, State::done);
  self.stop_here(fiber);
  __builtin_unreachable();
}

std::string Runner::place_of(const Fiber& fiber) const {
  const Launch& launch = fiber.launch;
  return "threadgroup (" + std::to_string(group_[0]) + ", " + std::to_string(group_[1]) + ", " +
         std::to_string(group_[2]) + "), thread " + std::to_string(launch.thread_index) +
         " (simdgroup " + std::to_string(launch.simdgroup) + ", lane " +
         std::to_string(launch.lane) + ")";
}

void Runner::throw_failure() {
  const Fiber& fiber = failure_.fiber ? *failure_.fiber : *current_;
  std::string what = failure_.what;
  if (fault_.signal != 0) {
    what = describe_fault(fault_.signal, failure_.site, stacks_.is_guard(fault_.address));
  } else if (failure_.is_stuck) {
    const uint32_t simdgroup = fiber.launch.simdgroup;
    what = simdgroups_[simdgroup].num_meeting > 0 ? stuck_simdgroup(simdgroup) : stuck_group();
  }
  if (failure_.other_site) what += " (" + source_line(failure_.other_site) + ")";
  if (failure_.site) what += ", at " + source_line(failure_.site);
  throw DeviceError("fibers: kernel '" + job_->label + "', " + place_of(fiber) + ": " + what);
}

void Runner::fail(std::string what, const void* site, const void* other_site) {
  failure_ = {std::move(what), site, other_site, current_, false};
  switch_to(current_->context, host_, true);
  __builtin_unreachable();
}

void* Runner::leave_after_fault(int signal, uintptr_t address, const void* site) {
  if (!on_fiber_) return nullptr;
  fault_ = {signal, address};
  failure_.site = site;
  return host_.stack_pointer;
}

// --- who runs next

bool Runner::is_ready(const Fiber& fiber) const {
  return (simdgroups_[fiber.launch.simdgroup].ready >> fiber.turn & 1u) != 0;
}

void Runner::pause(Fiber& self, State state) {
  self.state = state;
  simdgroups_[self.launch.simdgroup].ready &= ~(1u << self.turn);
}

// A ready thread of the simdgroup, from a turn on. There must be one.
Runner::Fiber& Runner::ready_fiber_of(uint32_t simdgroup, uint32_t turn) {
  const Simdgroup& group = simdgroups_[simdgroup];
  const int skip = std::countr_zero(std::rotr(group.ready, static_cast<int>(turn % kLanes)));
  return fibers_[simdgroup * kLanes + group.order[(turn + static_cast<uint32_t>(skip)) % kLanes]];
}

// A ready thread of a simdgroup drawn by lot; null where no simdgroup has one.
Runner::Fiber* Runner::other_simdgroup() {
  if (ready_simdgroups_ == 0) return nullptr;
  uint32_t rest = ready_simdgroups_;
  for (uint32_t skip = draw(static_cast<uint32_t>(__builtin_popcount(rest))); skip > 0; --skip) {
    rest &= rest - 1;
  }
  return &ready_fiber_of(static_cast<uint32_t>(__builtin_ctz(rest)), draw(kLanes));
}

// After `from` stopped: null where nobody can go on.
Runner::Fiber* Runner::next_fiber(const Fiber& from) {
  const uint32_t index = from.launch.simdgroup;
  const Simdgroup& simdgroup = simdgroups_[index];
  if (simdgroup.ready != 0) return &ready_fiber_of(index, from.turn + 1u);
  if (simdgroup.num_meeting > 0) return nullptr;
  ready_simdgroups_ &= ~(1u << index);
  return other_simdgroup();
}

// Lets a ready fiber run.
void Runner::switch_from(Fiber& self, Fiber& next) {
  if (&next == &self) return;
  current_ = &next;
  switch_to(self.context, next.context);
}

// Lets others run until this fiber is ready again and chosen; ends the group where that cannot be.
void Runner::stop_here(Fiber& self) {
  Fiber* next = next_fiber(self);
  if (next == nullptr) {
    if (simdgroups_[self.launch.simdgroup].num_meeting > 0 || num_done_ != num_threads_) {
      failure_.fiber = &self;
      failure_.is_stuck = true;
    }
    switch_to(self.context, host_, true);
    __builtin_unreachable();
  }
  current_ = next;
  switch_to(self.context, next->context, self.state == State::done);
}

// "20 lanes are at simd_shuffle (file:line), 12 lanes returned".
std::string Runner::stuck_simdgroup(uint32_t simdgroup) const {
  std::string text = "divergence in simdgroup " + std::to_string(simdgroup) + ": ";
  uint32_t done = 0, waiting = 0, meeting = 0;
  const Fiber *one = nullptr, *other = nullptr;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const Fiber& fiber = fibers_[simdgroup * kLanes + lane];
    if (is_ready(fiber)) continue;
    done += fiber.state == State::done;
    if (fiber.state == State::at_simdgroup) ++meeting, one = &fiber;
    if (fiber.state == State::at_barrier) ++waiting, other = &fiber;
  }
  text += count_of(meeting, "lane") + (meeting == 1 ? " is" : " are") + " at " + one->meeting.name +
          " (" + source_line(one->meeting.site) + ")";
  if (waiting > 0) {
    text += ", " + count_of(waiting, "lane") + " at threadgroup_barrier (" +
            source_line(other->meeting.site) + ")";
  }
  if (done > 0) text += ", " + count_of(done, "lane") + " returned";
  return text;
}

std::string Runner::stuck_group() const {
  const Fiber* waiting = nullptr;
  for (uint32_t i = 0; i < num_threads_; ++i) {
    const Fiber& fiber = fibers_[i];
    if (!is_ready(fiber) && fiber.state == State::at_barrier) waiting = &fiber;
  }
  return count_of(num_at_barrier_, "thread") + " of " + std::to_string(num_threads_) +
         " wait at threadgroup_barrier (" + source_line(waiting->meeting.site) + "), but " +
         count_of(num_done_, "thread") + " returned without coming to it";
}

// --- meetings

void Runner::check_meeting(const Fiber& self, const Fiber& first) {
  const Meeting &mine = self.meeting, &theirs = first.meeting;
  if (theirs.site == mine.site && theirs.combine == mine.combine) return;
  fail("divergence in simdgroup " + std::to_string(self.launch.simdgroup) + ": lane " +
           std::to_string(self.launch.lane) + " is at " + mine.name + ", but lane " +
           std::to_string(first.launch.lane) + " at " + theirs.name,
       mine.site, theirs.site);
}

void Runner::meet_simdgroup(const Meeting& meeting) {
  Fiber& self = *current_;
  Simdgroup& simdgroup = simdgroups_[self.launch.simdgroup];
  self.meeting = meeting;
  std::byte* slot = simdgroup.lanes + self.launch.lane * kSlotBytes;
  copy_value(slot, meeting.value, meeting.bytes);
  if (simdgroup.num_meeting == 0) simdgroup.first = &self;
  check_meeting(self, *simdgroup.first);
  if (++simdgroup.num_meeting < kLanes) {
    pause(self, State::at_simdgroup);
    stop_here(self);
  } else {
    if (meeting.combine != nullptr) meeting.combine(simdgroup.lanes);
    simdgroup.ready = kAll;
    simdgroup.num_meeting = 0;
    if (draw(kMeetingsPerTurn) == 0) switch_from(self, *other_simdgroup());
  }
  // Nobody writes to this slot before this lane comes to the next meeting.
  copy_value(meeting.value, slot, meeting.bytes);
}

void Runner::simdgroup_barrier(uint32_t flags, const void* site) {
  const bool completes = simdgroups_[current_->launch.simdgroup].num_meeting + 1 == kLanes;
  if (completes && (flags & kOrdersThreadgroupMemory) != 0) {
    memory_.simdgroup_barrier(current_->launch.simdgroup);
  }
  meet_simdgroup({"simdgroup_barrier", site, nullptr, nullptr, 0});
}

void Runner::threadgroup_barrier(uint32_t flags, const void* site) {
  Fiber& self = *current_;
  self.meeting = {"threadgroup_barrier", site, nullptr, nullptr, 0};
  pause(self, State::at_barrier);
  if (++num_at_barrier_ < num_threads_) return stop_here(self);
  for (uint32_t i = 0; i < num_threads_; ++i) {
    if (fibers_[i].meeting.site == site) continue;
    fail("thread " + std::to_string(i) + " is at another threadgroup_barrier", site,
         fibers_[i].meeting.site);
  }
  const uint32_t num_simdgroups = num_threads_ / kLanes;
  for (uint32_t s = 0; s < num_simdgroups; ++s) simdgroups_[s].ready = kAll;
  ready_simdgroups_ = static_cast<uint32_t>((uint64_t{1} << num_simdgroups) - 1);
  num_at_barrier_ = 0;
  if ((flags & kOrdersThreadgroupMemory) != 0) memory_.threadgroup_barrier();
  switch_from(self, *other_simdgroup());
}

// --- memory

std::byte* Runner::array(const char* name, const void* declaration, uint32_t bytes,
                         const void* site) {
  std::string error;
  std::byte* memory = memory_.array(name, declaration, bytes, error);
  if (memory == nullptr) fail(std::move(error), site);
  return memory;
}

void Runner::touch_elsewhere(uintptr_t address, uint32_t bytes, Touch kind, const void* site) {
  if (memory_.contains(address)) {
    const uint32_t thread = current_->launch.thread_index;
    if (memory_.touch(address, bytes, kind, thread)) return;
    fail(memory_.last_error(), site);
  }
  const bool writes = is_write(kind);
  for (size_t at = 0; at < job_->bound.size(); ++at) {
    const Bound& bound = job_->bound[at];
    if (address < bound.begin || address + bytes > bound.end) continue;
    if (writes && !bound.writable) continue;
    hot_[writes] = {bound.begin, bound.end, &touched_[writes][at]};
    return touched_[writes][at].widen(address, bytes);
  }
  const auto params = reinterpret_cast<uintptr_t>(job_->params.data());
  if (!writes && address >= params && address + bytes <= params + job_->kernel->params_bytes) {
    return;
  }
  if (!writes && is_program_constant(address)) return;
  fail(out_of_bounds(address, bytes, kind), site);
}

void Runner::forget_touched() {
  for (auto& spans : touched_) std::ranges::fill(spans, Span());
}

void Runner::report_touched(std::vector<Touched>& to) const {
  for (const bool written : {false, true}) {
    for (const Span& span : touched_[written]) {
      if (span.begin < span.end) to.push_back({span.begin, span.end, written});
    }
  }
}

std::string Runner::out_of_bounds(uintptr_t address, uint32_t bytes, Touch kind) const {
  const bool writes = is_write(kind);
  std::string text = (writes ? "writes " : "reads ") + count_of(bytes, "byte") + " ";
  constexpr uintptr_t kNear = uintptr_t{1} << 24;
  std::string nearest;
  uintptr_t least = kNear;
  for (size_t i = 0; i < job_->bound.size(); ++i) {
    const Bound& bound = job_->bound[i];
    const std::string name = "binding " + std::to_string(i);
    if (address >= bound.begin && address + bytes <= bound.end) {
      return text + "at byte " + grouped(address - bound.begin) + " of " + name +
             ", which is bound as input";
    }
    const bool is_before = address < bound.begin;
    const uintptr_t away = is_before ? bound.begin - address : address + bytes - bound.end;
    if (away >= least) continue;
    least = away;
    nearest = is_before ? grouped(away) + " bytes before " + name
                        : "at byte " + grouped(address - bound.begin) + " of " + name +
                              ", which has " + grouped(bound.end - bound.begin) + " bytes";
  }
  return text + (nearest.empty() ? "that belong to no binding" : nearest);
}

}  // namespace lily::fibers

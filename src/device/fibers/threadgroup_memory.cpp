// See threadgroup_memory.h.
#include "device/fibers/threadgroup_memory.h"

#include <sanitizer/asan_interface.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/error.h"

namespace lily::fibers {
namespace {

constexpr int kPoison = 0xff;  // NaN as every floating-point type, and no index of anything
constexpr uint32_t kAlignment = 16;
constexpr uint32_t kLastEpoch = (1u << 28) - 1;

}  // namespace

void ThreadgroupMemory::Free::operator()(std::byte* memory) const {
  ASAN_UNPOISON_MEMORY_REGION(memory, kWindow);
  std::free(memory);
}

ThreadgroupMemory::ThreadgroupMemory()
    : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, kWindow))), cells_(kWindow) {
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), kPoison, kWindow);
}

void ThreadgroupMemory::next_epoch() {
  if (++epoch_ < kLastEpoch) return;
  cells_.assign(kWindow, Cell{});
  epoch_ = 1;
}

void ThreadgroupMemory::reset() {
  // AddressSanitizer, where it is there, sees what is between arrays; otherwise this is nothing.
  ASAN_UNPOISON_MEMORY_REGION(memory_.get(), kWindow);
  std::memset(memory_.get(), kPoison, used_);
  ASAN_POISON_MEMORY_REGION(memory_.get(), kWindow);
  arrays_.clear();
  used_ = asked_ = hot_ = 0;
  next_epoch();
  for (uint32_t& epoch : simdgroup_epochs_) epoch = 0;
}

std::byte* ThreadgroupMemory::array(const char* name, const void* declaration, uint32_t bytes,
                                    std::string& error) {
  for (const Array& array : arrays_) {
    if (array.declaration == declaration) return memory_.get() + array.offset;
  }
  const uint32_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (asked_ + whole > kThreadgroupMemory || used_ + whole + 2 * kFence > kWindow) {
    error = "threadgroup memory: array '" + std::string(name) + "' of " + grouped(bytes) +
            " bytes comes to " + grouped(asked_) + " bytes of others; the limit is " +
            grouped(kThreadgroupMemory);
    return nullptr;
  }
  arrays_.push_back({name, declaration, used_ + kFence, bytes, 2});
  asked_ += whole;
  used_ += kFence + whole;
  ASAN_UNPOISON_MEMORY_REGION(memory_.get() + arrays_.back().offset, bytes);
  return memory_.get() + arrays_.back().offset;
}

ThreadgroupMemory::Array* ThreadgroupMemory::find(uint32_t offset, uint32_t bytes) {
  const auto holds = [&](const Array& array) {
    return offset >= array.offset && offset + bytes <= array.offset + array.bytes;
  };
  if (hot_ < arrays_.size() && holds(arrays_[hot_])) return &arrays_[hot_];
  for (hot_ = 0; hot_ < arrays_.size(); ++hot_) {
    if (holds(arrays_[hot_])) return &arrays_[hot_];
  }
  return nullptr;
}

// Somebody touches less than four bytes: from now on each byte has a cell of its own.
void ThreadgroupMemory::refine(Array& array) {
  array.shift = 0;
  for (uint32_t offset = array.offset; offset < array.offset + array.bytes; ++offset) {
    cells_[offset] = cells_[offset / 4 * 4];
  }
}

// Whether a read by this thread is ordered after the last write.
bool ThreadgroupMemory::read(Cell& cell, uint32_t thread, bool atomic) const {
  const uint32_t simdgroup = thread / kLanes, lane = thread % kLanes;
  const Writer& writer = cell.writer;
  const bool is_ordered = writer.epoch != epoch_ || writer.thread == thread ||
                          (atomic && writer.atomic) ||
                          (writer.thread / kLanes == simdgroup &&
                           writer.simdgroup_epoch != simdgroup_epochs_[simdgroup]);
  if (atomic) return is_ordered;  // later atomic writes need no order
  Reader& reader = cell.reader;
  if (reader.epoch != epoch_) {
    reader = {epoch_, simdgroup_epochs_[simdgroup], simdgroup, lane};
  } else if (reader.simdgroup != simdgroup) {
    reader.simdgroup = kMany;
  } else if (reader.simdgroup_epoch != simdgroup_epochs_[simdgroup]) {
    reader = {epoch_, simdgroup_epochs_[simdgroup], simdgroup, lane};
  } else if (reader.lane != lane) {
    reader.lane = kMany;
  }
  return is_ordered;
}

// Whether a write by this thread is ordered after the last write and all reads.
bool ThreadgroupMemory::write(Cell& cell, uint32_t thread, bool atomic) const {
  const uint32_t simdgroup = thread / kLanes, lane = thread % kLanes;
  const uint32_t simdgroup_epoch = simdgroup_epochs_[simdgroup];
  const Writer& writer = cell.writer;
  const Reader& reader = cell.reader;
  const bool after_write =
      writer.epoch != epoch_ || writer.thread == thread || (atomic && writer.atomic) ||
      (writer.thread / kLanes == simdgroup && writer.simdgroup_epoch != simdgroup_epoch);
  const bool after_reads = reader.epoch != epoch_ ||
                           (reader.simdgroup == simdgroup &&
                            (reader.lane == lane || reader.simdgroup_epoch != simdgroup_epoch));
  cell.writer = {epoch_, simdgroup_epoch, thread, atomic};
  return after_write && after_reads;
}

bool ThreadgroupMemory::touch(uintptr_t address, uint32_t bytes, Touch kind, uint32_t thread) {
  const auto offset = static_cast<uint32_t>(address - begin());
  Array* array = find(offset, bytes);
  if (array == nullptr) {
    error_ = outside(offset, bytes, kind);
    return false;
  }
  if (array->shift != 0 && ((offset | bytes) & 3u) != 0) refine(*array);
  const uint32_t step = 1u << array->shift;
  for (uint32_t at = offset; at < offset + bytes; at += step) {
    Cell& cell = cells_[at];
    const Cell before = cell;
    const bool is_ordered = is_write(kind) ? write(cell, thread, kind == Touch::atomic)
                                           : read(cell, thread, kind == Touch::atomic_read);
    if (is_ordered) continue;
    error_ = race(*array, before, at, kind);
    return false;
  }
  return true;
}

std::string ThreadgroupMemory::outside(uint32_t offset, uint32_t bytes, Touch kind) const {
  std::string places;
  for (const Array& array : arrays_) {
    places += (places.empty() ? "byte " : ", byte ") +
              std::to_string(int64_t{offset} - int64_t{array.offset}) + " of '" + array.name +
              "' (" + grouped(array.bytes) + " bytes)";
  }
  return std::string(is_write(kind) ? "writes " : "reads ") + std::to_string(bytes) +
         " bytes outside every threadgroup array: " + places;
}

std::string ThreadgroupMemory::race(const Array& array, const Cell& cell, uint32_t offset,
                                    Touch kind) const {
  std::string text = is_write(kind) ? "writes" : "reads";
  text += " byte " + grouped(offset - array.offset) + " of threadgroup array '" +
          std::string(array.name) + "', which ";
  if (cell.writer.epoch == epoch_) {
    text += "thread " + std::to_string(cell.writer.thread) + " wrote";
  } else if (cell.reader.simdgroup == kMany) {
    text += "threads of several simdgroups read";
  } else if (cell.reader.lane == kMany) {
    text += "several threads of simdgroup " + std::to_string(cell.reader.simdgroup) + " read";
  } else {
    text += "thread " + std::to_string(cell.reader.simdgroup * kLanes + cell.reader.lane) + " read";
  }
  return text + ", with no barrier between: a race";
}

}  // namespace lily::fibers

// The threadgroup memory of one threadgroup: hands out its arrays, poisoned and fenced, keeps
// Metal's limit, and finds races. A race is two threads touching a byte, one of them writing, with
// no barrier between; that both came in a lucky order does not matter. Knows no scheduling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/fibers/kernel.h"

namespace lily::fibers {

enum class Touch : uint8_t { read, write, atomic_read, atomic };

constexpr bool is_write(Touch kind) { return kind == Touch::write || kind == Touch::atomic; }

class ThreadgroupMemory {
 public:
  ThreadgroupMemory();

  // A new threadgroup begins: no arrays yet, and nothing it did before counts.
  void reset();

  // The array of this declaration, made at the first call. Null, with a reason in `error`, where
  // the limit is passed.
  std::byte* array(const char* name, const void* declaration, uint32_t bytes, std::string& error);

  bool contains(uintptr_t address) const { return address - begin() < kWindow; }

  // A thread touches bytes of this memory. False where that is wrong; last_error() says why.
  bool touch(uintptr_t address, uint32_t bytes, Touch kind, uint32_t thread);
  const std::string& last_error() const { return error_; }

  // Barriers that order threadgroup memory.
  void threadgroup_barrier() { next_epoch(); }
  void simdgroup_barrier(uint32_t simdgroup) { ++simdgroup_epochs_[simdgroup]; }

 private:
  static constexpr uint32_t kFence = 64;  // bytes that belong to no array
  static constexpr size_t kWindow = kThreadgroupMemory + 64 * kFence;
  static constexpr uint8_t kMany = 63;

  // Who wrote and who read a piece of an array, and between which barriers. One word each, so that
  // the usual case, the same thread again, is one comparison.
  struct Writer {
    uint64_t epoch : 28, simdgroup_epoch : 24, thread : 11, atomic : 1;
  };
  struct Reader {
    uint64_t epoch : 28, simdgroup_epoch : 24, simdgroup : 6, lane : 6;
  };
  struct Cell {
    Writer writer;
    Reader reader;
  };
  struct Array {
    const char* name;
    const void* declaration;
    uint32_t offset, bytes;
    uint32_t shift;  // a cell stands for 1 << shift bytes
  };

  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(memory_.get()); }
  void next_epoch();
  Array* find(uint32_t offset, uint32_t bytes);
  void refine(Array& array);
  bool read(Cell& cell, uint32_t thread, bool atomic) const;
  bool write(Cell& cell, uint32_t thread, bool atomic) const;
  std::string outside(uint32_t offset, uint32_t bytes, Touch kind) const;
  std::string race(const Array& array, const Cell& cell, uint32_t offset, Touch kind) const;

  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Cell> cells_;  // of the byte at the same offset; of a piece, its first byte's
  std::vector<Array> arrays_;
  uint32_t used_ = 0;   // bytes of the window, with fences
  uint32_t asked_ = 0;  // bytes that count against the limit
  uint32_t hot_ = 0;    // the array of the last access
  uint32_t epoch_ = 0;
  std::string error_;
  uint32_t simdgroup_epochs_[kMaxThreads / kLanes] = {};
};

}  // namespace lily::fibers

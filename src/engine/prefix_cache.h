// Prefixes that sessions have computed, kept so that a later prompt need not compute them again.
// KV rows can be cut at any token but the recurrent state only where a snapshot was taken: the
// cache is a tree of segments that each end at such a place. Owns the choice of what to keep under
// a byte budget. Sees the device's memory only as opaque buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"

namespace lily {

// What one segment keeps: KV rows of its tokens, and the recurrent state behind the last of them.
struct Segment {
  uint32_t begin = 0, end = 0;
  Buffer kv;         // nullptr where the model has no attention layer
  Buffer recurrent;  // nullptr where the model has no delta layer, or when it was given up
};

// Where segments come from: a session's state, or plain memory in tests.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual uint64_t kv_bytes(uint32_t begin, uint32_t end) const = 0;
  virtual uint64_t recurrent_bytes() const = 0;
  // Copies rows [begin, end) and the state at `end`.
  virtual Segment capture(uint32_t begin, uint32_t end) = 0;
};

class PrefixCache {
 public:
  struct Match {
    uint32_t tokens = 0;                               // 0: nothing to resume from
    std::vector<std::shared_ptr<const Segment>> path;  // tiles [0, tokens)
  };
  struct Stats {
    uint64_t snapshots = 0, bytes = 0, hits = 0, misses = 0, evictions = 0;
  };

  explicit PrefixCache(uint64_t budget_bytes);
  ~PrefixCache();

  // The deepest snapshot at or before token `limit` of this prompt. Counts a hit or a miss.
  Match lookup(std::span<const uint32_t> tokens, uint32_t limit);
  // The same place, without counting it as use.
  uint32_t depth(std::span<const uint32_t> tokens) const;
  // Keeps a snapshot behind `tokens`, copying only what no segment of the path holds. False where
  // it does not fit the budget whatever is evicted.
  bool insert(std::span<const uint32_t> tokens, SegmentSource& source);

  uint64_t budget_bytes() const;
  void set_budget(uint64_t bytes);  // evicts at once
  void clear();
  Stats stats() const;

 private:
  struct Node;
  enum class Want : uint8_t { any, resumable };
  Node* deepest(std::span<const uint32_t> tokens, Want want) const;
  bool make_room(uint64_t bytes, const Node* keep);
  bool evict_one(const Node* keep);
  void remove_leaf(Node* leaf, const Node* keep);
  void drop_state(Node* node);

  mutable std::mutex mutex_;
  uint64_t budget_bytes_;
  uint64_t clock_ = 0;
  Stats stats_;
  std::unique_ptr<Node> root_;
};

}  // namespace lily

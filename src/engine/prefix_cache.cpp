// See prefix_cache.h. Least recently used goes first, where "used" means taken or resumed from at
// that very place: passing through on the way to a deeper snapshot does not count, or the many
// snapshots in the middle of a long conversation would outlive everything else.
#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace lily {

struct PrefixCache::Node {
  Node* parent = nullptr;
  std::vector<uint32_t> tokens;            // of the segment
  std::shared_ptr<const Segment> segment;  // nullptr: the root
  bool resumable = false;                  // the recurrent state is still here
  uint64_t used = 0;
  uint64_t bytes = 0;            // of KV rows and state
  uint64_t recurrent_bytes = 0;  // ... of the state alone
  std::vector<std::unique_ptr<Node>> children;

  uint32_t end() const { return segment ? segment->end : 0; }
};

PrefixCache::PrefixCache(uint64_t budget_bytes)
    : budget_bytes_(budget_bytes), root_(std::make_unique<Node>()) {}

PrefixCache::~PrefixCache() { clear(); }

// Siblings may begin alike (two prompts that part inside what would be one segment), so every child
// that matches is followed, not only the longest. The root stands for "nothing".
PrefixCache::Node* PrefixCache::deepest(std::span<const uint32_t> tokens, Want want) const {
  Node* best = root_.get();
  std::vector<Node*> pending{root_.get()};
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    if (node->end() > best->end() && (want == Want::any || node->resumable)) best = node;
    const std::span<const uint32_t> rest = tokens.subspan(node->end());
    for (const auto& child : node->children) {
      const std::vector<uint32_t>& segment = child->tokens;
      if (segment.size() > rest.size()) continue;
      if (std::equal(segment.begin(), segment.end(), rest.begin())) pending.push_back(child.get());
    }
  }
  return best;
}

PrefixCache::Match PrefixCache::lookup(std::span<const uint32_t> tokens, uint32_t limit) {
  std::lock_guard lock(mutex_);
  Node* node = deepest(tokens.first(std::min<size_t>(limit, tokens.size())), Want::resumable);
  if (node == root_.get()) {
    ++stats_.misses;
    return {};
  }
  ++stats_.hits;
  node->used = ++clock_;
  Match match;
  match.tokens = node->end();
  for (; node != root_.get(); node = node->parent) match.path.push_back(node->segment);
  std::reverse(match.path.begin(), match.path.end());
  return match;
}

uint32_t PrefixCache::depth(std::span<const uint32_t> tokens) const {
  std::lock_guard lock(mutex_);
  return deepest(tokens, Want::resumable)->end();
}

bool PrefixCache::insert(std::span<const uint32_t> tokens, SegmentSource& source) {
  if (tokens.empty()) return false;
  std::lock_guard lock(mutex_);
  Node* node = deepest(tokens, Want::any);
  const uint32_t begin = node->end(), end = static_cast<uint32_t>(tokens.size());
  const bool is_there = begin == end;
  if (is_there && node->resumable) {
    node->used = ++clock_;
    return true;
  }
  // Where only the state was given up, the KV rows are still there and only the state is added.
  const uint64_t recurrent_bytes = source.recurrent_bytes();
  const uint64_t bytes = recurrent_bytes + (is_there ? 0 : source.kv_bytes(begin, end));
  if (!make_room(bytes, node)) return false;
  Segment segment = source.capture(begin, end);
  if (is_there) {
    segment.begin = node->segment->begin;
    segment.kv = node->segment->kv;
  } else {
    auto child = std::make_unique<Node>();
    child->parent = node;
    child->tokens.assign(tokens.begin() + begin, tokens.end());
    node->children.push_back(std::move(child));
    node = node->children.back().get();
  }
  node->segment = std::make_shared<const Segment>(std::move(segment));
  node->resumable = true;
  node->used = ++clock_;
  node->bytes += bytes;
  node->recurrent_bytes = recurrent_bytes;
  stats_.bytes += bytes;
  ++stats_.snapshots;
  return true;
}

// Evicts until `bytes` more fit. `keep` is about to get a child: its path must stay.
bool PrefixCache::make_room(uint64_t bytes, const Node* keep) {
  uint64_t needed = bytes;
  for (const Node* node = keep; node != nullptr; node = node->parent) {
    needed += node->bytes - node->recurrent_bytes;
  }
  if (needed > budget_bytes_) return false;  // before anything is evicted in vain
  while (stats_.bytes > budget_bytes_ - bytes) {
    if (!evict_one(keep)) return false;
  }
  return true;
}

// A leaf goes whole. A node with children keeps its KV rows, which they need, and gives up its
// state. False where nothing is left to evict.
bool PrefixCache::evict_one(const Node* keep) {
  Node* oldest = nullptr;
  std::vector<Node*> pending{root_.get()};
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    for (const auto& child : node->children) pending.push_back(child.get());
    const bool goes_whole = node->children.empty() && node != keep;
    const bool frees = goes_whole || (node->resumable && node->recurrent_bytes > 0);
    if (node == root_.get() || !frees) continue;
    if (oldest == nullptr || node->used < oldest->used) oldest = node;
  }
  if (oldest == nullptr) return false;
  ++stats_.evictions;
  if (oldest->children.empty() && oldest != keep) {
    remove_leaf(oldest, keep);
  } else {
    drop_state(oldest);
  }
  return true;
}

void PrefixCache::drop_state(Node* node) {
  Segment kv_only = *node->segment;
  kv_only.recurrent = nullptr;
  node->segment = std::make_shared<const Segment>(std::move(kv_only));
  node->resumable = false;
  node->bytes -= node->recurrent_bytes;
  stats_.bytes -= node->recurrent_bytes;
  node->recurrent_bytes = 0;
  --stats_.snapshots;
}

// Takes with it the ancestors that were kept for this leaf only.
void PrefixCache::remove_leaf(Node* leaf, const Node* keep) {
  while (leaf != root_.get() && leaf != keep && leaf->children.empty()) {
    Node* parent = leaf->parent;
    stats_.bytes -= leaf->bytes;
    stats_.snapshots -= leaf->resumable ? 1 : 0;
    std::erase_if(parent->children, [&](const auto& child) { return child.get() == leaf; });
    if (parent->resumable) return;
    leaf = parent;
  }
}

uint64_t PrefixCache::budget_bytes() const {
  std::lock_guard lock(mutex_);
  return budget_bytes_;
}

void PrefixCache::set_budget(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  budget_bytes_ = bytes;
  while (stats_.bytes > budget_bytes_ && evict_one(nullptr)) {
  }
}

void PrefixCache::clear() {
  std::lock_guard lock(mutex_);
  // Leaves first: a chain as long as a conversation would recurse as deep in destructors.
  std::vector<std::unique_ptr<Node>> pending = std::move(root_->children);
  root_->children.clear();
  while (!pending.empty()) {
    std::vector<std::unique_ptr<Node>> next;
    for (const auto& node : pending) {
      for (auto& child : node->children) next.push_back(std::move(child));
    }
    pending = std::move(next);
  }
  stats_.bytes = stats_.snapshots = 0;
}

PrefixCache::Stats PrefixCache::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace lily

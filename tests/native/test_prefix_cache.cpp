// engine/prefix_cache: what is found, what is kept, and what goes first, over memory that remembers
// which tokens it stands for. A search through all prefixes is the model that the tree must match.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "check.h"
#include "engine/prefix_cache.h"

namespace lily {
namespace {

using Tokens = std::vector<uint32_t>;

constexpr uint64_t kTokenBytes = 10;
constexpr uint64_t kStateBytes = 100;

// Holds the tokens it was made from in place of numbers.
class FakeMemory final : public BufferStorage {
 public:
  FakeMemory(Tokens from, size_t bytes) : BufferStorage(bytes, nullptr), tokens(std::move(from)) {}
  Tokens tokens;
};

class FakeSource final : public SegmentSource {
 public:
  explicit FakeSource(Tokens timeline) : timeline_(std::move(timeline)) {}
  uint64_t kv_bytes(uint32_t begin, uint32_t end) const override {
    return kTokenBytes * (end - begin);
  }
  uint64_t recurrent_bytes() const override { return kStateBytes; }
  Segment capture(uint32_t begin, uint32_t end) override {
    ++captures;
    const Tokens rows(timeline_.begin() + begin, timeline_.begin() + end);
    return {begin, end, std::make_shared<FakeMemory>(rows, kv_bytes(begin, end)),
            std::make_shared<FakeMemory>(timeline_, kStateBytes)};
  }
  int captures = 0;

 private:
  Tokens timeline_;
};

bool keep(PrefixCache& cache, const Tokens& tokens) {
  FakeSource source(tokens);
  return cache.insert(tokens, source);
}

const Tokens& tokens_in(const Buffer& memory) {
  return static_cast<const FakeMemory&>(*memory).tokens;
}

// The match tiles its prefix with the right rows, and ends in the state of just that prefix.
void check_match(const PrefixCache::Match& match, const Tokens& tokens) {
  Tokens rows;
  for (const auto& segment : match.path) {
    CHECK_EQ(segment->begin, rows.size());
    const Tokens& part = tokens_in(segment->kv);
    rows.insert(rows.end(), part.begin(), part.end());
    CHECK_EQ(segment->end, rows.size());
  }
  const Tokens prefix(tokens.begin(), tokens.begin() + match.tokens);
  CHECK(rows == prefix);
  if (match.tokens > 0) CHECK(tokens_in(match.path.back()->recurrent) == prefix);
}

uint32_t found(PrefixCache& cache, const Tokens& tokens, uint32_t limit) {
  const PrefixCache::Match match = cache.lookup(tokens, limit);
  check_match(match, tokens);
  return match.tokens;
}
uint32_t found(PrefixCache& cache, const Tokens& tokens) {
  return found(cache, tokens, static_cast<uint32_t>(tokens.size()));
}

TEST(prefix_cache_finds_the_deepest_snapshot) {
  PrefixCache cache(1 << 20);
  CHECK_EQ(found(cache, {1, 2, 3}), 0u);
  CHECK(keep(cache, {1, 2, 3}));
  CHECK(keep(cache, {1, 2, 3, 4, 5}));
  CHECK_EQ(found(cache, {1, 2}), 0u);
  CHECK_EQ(found(cache, {1, 2, 3, 4}), 3u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 5, 6}), 5u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 5, 6}, 4), 3u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 6}), 3u);
  CHECK_EQ(found(cache, {2, 2, 3}), 0u);
  CHECK_EQ(cache.stats().hits, 4u);
  CHECK_EQ(cache.stats().misses, 3u);
  CHECK_EQ(cache.stats().snapshots, 2u);
  CHECK_EQ(cache.stats().bytes, 5 * kTokenBytes + 2 * kStateBytes);
}

TEST(prefix_cache_copies_only_what_is_new) {
  PrefixCache cache(1 << 20);
  FakeSource source({1, 2, 3, 4});
  CHECK(cache.insert(Tokens{1, 2, 3, 4}, source));
  CHECK(cache.insert(Tokens{1, 2, 3, 4}, source));
  CHECK_EQ(source.captures, 1);
  CHECK(!cache.insert(Tokens{}, source));
  CHECK_EQ(cache.stats().bytes, 4 * kTokenBytes + kStateBytes);
}

TEST(prefix_cache_follows_siblings_that_begin_alike) {
  PrefixCache cache(1 << 20);
  CHECK(keep(cache, {1, 2, 3, 4, 5}));
  CHECK(keep(cache, {1, 2, 3}));  // beside the first, which passes this place
  CHECK(keep(cache, {1, 2, 3, 9}));
  CHECK_EQ(found(cache, {1, 2, 3, 9, 9}), 4u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 5, 9}), 5u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 9}), 3u);
}

TEST(prefix_cache_evicts_the_least_recently_used_leaf) {
  PrefixCache cache(3 * (2 * kTokenBytes + kStateBytes));
  CHECK(keep(cache, {1, 1}));
  CHECK(keep(cache, {2, 2}));
  CHECK(keep(cache, {3, 3}));
  CHECK_EQ(found(cache, {1, 1, 7}), 2u);
  CHECK(keep(cache, {4, 4}));
  CHECK_EQ(cache.depth(Tokens{1, 1}), 2u);
  CHECK_EQ(cache.depth(Tokens{2, 2}), 0u);
  CHECK_EQ(cache.depth(Tokens{3, 3}), 2u);
  CHECK_EQ(cache.stats().evictions, 1u);
}

TEST(prefix_cache_gives_up_states_on_the_way_before_their_rows) {
  PrefixCache cache(6 * kTokenBytes + 2 * kStateBytes);
  CHECK(keep(cache, {1, 2}));
  CHECK(keep(cache, {1, 2, 3, 4}));
  CHECK(keep(cache, {1, 2, 3, 4, 5, 6}));  // no room for a third state
  CHECK_EQ(found(cache, {1, 2, 3}), 0u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 9}), 4u);
  CHECK_EQ(found(cache, {1, 2, 3, 4, 5, 6, 7}), 6u);
  CHECK_EQ(cache.stats().bytes, 6 * kTokenBytes + 2 * kStateBytes);
  // The rows are still there: only the state is copied again, and another one goes.
  FakeSource source({1, 2});
  CHECK(cache.insert(Tokens{1, 2}, source));
  CHECK_EQ(found(cache, {1, 2, 3}), 2u);
  CHECK_EQ(cache.stats().bytes, 6 * kTokenBytes + 2 * kStateBytes);
}

TEST(prefix_cache_refuses_what_can_never_fit) {
  PrefixCache cache(3 * kTokenBytes + kStateBytes);
  CHECK(keep(cache, {1, 2, 3}));
  CHECK(!keep(cache, {5, 5, 5, 5}));
  CHECK(!keep(cache, {1, 2, 3, 4}));
  CHECK_EQ(cache.depth(Tokens{1, 2, 3}), 3u);  // and evicts nothing for it
  PrefixCache none(0);
  CHECK(!keep(none, {1}));
}

TEST(prefix_cache_budget_can_shrink) {
  PrefixCache cache(1 << 20);
  for (uint32_t first = 0; first < 10; ++first) CHECK(keep(cache, {first, 1, 2}));
  const uint64_t one = 3 * kTokenBytes + kStateBytes;
  cache.set_budget(4 * one);
  CHECK_EQ(cache.stats().snapshots, 4u);
  CHECK_EQ(cache.stats().bytes, 4 * one);
  CHECK_EQ(cache.depth(Tokens{9, 1, 2}), 3u);
  cache.set_budget(0);
  CHECK_EQ(cache.stats().bytes, 0u);
}

TEST(prefix_cache_survives_a_very_long_chain) {
  PrefixCache cache(1 << 30);
  Tokens tokens;
  for (uint32_t token = 0; token < 3000; ++token) {
    tokens.push_back(token);
    keep(cache, tokens);
  }
  CHECK_EQ(cache.stats().snapshots, 3000u);
  cache.set_budget(3000 * kTokenBytes + 5 * kStateBytes);
  CHECK_EQ(found(cache, tokens), 3000u);
  cache.clear();
  CHECK_EQ(cache.stats().snapshots, 0u);
  CHECK_EQ(cache.stats().bytes, 0u);
}

// Random prompts over three letters, so that they share prefixes in every way.
Tokens random_prompt(std::mt19937& random) {
  Tokens tokens(1 + random() % 9);
  for (uint32_t& token : tokens) token = random() % 3;
  return tokens;
}

TEST(prefix_cache_without_eviction_is_a_set_of_prefixes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    PrefixCache cache(1 << 20);
    std::map<Tokens, bool> kept;
    for (int turn = 0; turn < 40; ++turn) {
      const Tokens tokens = random_prompt(random);
      uint32_t deepest = 0;
      for (const auto& [prefix, there] : kept) {
        const bool fits = prefix.size() <= tokens.size() &&
                          std::equal(prefix.begin(), prefix.end(), tokens.begin());
        if (fits) deepest = std::max(deepest, static_cast<uint32_t>(prefix.size()));
      }
      CHECK_EQ(found(cache, tokens), deepest);
      if (random() % 2) CHECK(keep(cache, tokens));
      if (cache.depth(tokens) == tokens.size()) kept[tokens] = true;
    }
    CHECK_EQ(cache.stats().snapshots, kept.size());
  }
}

TEST(prefix_cache_stays_within_any_budget) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    uint64_t budget = random() % 1200;
    PrefixCache cache(budget);
    for (int turn = 0; turn < 60; ++turn) {
      const Tokens tokens = random_prompt(random);
      found(cache, tokens);
      if (keep(cache, tokens)) CHECK_EQ(found(cache, tokens), tokens.size());
      if (random() % 10 == 0) cache.set_budget(budget = random() % 1200);
      CHECK(cache.stats().bytes <= budget);
    }
    cache.set_budget(0);
    CHECK_EQ(cache.stats().bytes, 0u);
    CHECK_EQ(cache.stats().snapshots, 0u);
  }
}

}  // namespace
}  // namespace lily

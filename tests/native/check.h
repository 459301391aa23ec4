// The smallest test harness that reports well: named tests, checks that go on after a failure, and
// checks for typed errors. Knows nothing of what is tested.
#pragma once

#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lily::test {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

inline bool add(const char* name, void (*run)()) {
  tests().push_back({name, run});
  return true;
}

inline void fail(const char* file, int line, const std::string& what) {
  ++failures();
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

template <class A, class B>
void check_equal(const char* file, int line, const char* text, const A& got, const B& expected) {
  if (got == expected) return;
  std::ostringstream message;
  message << text << ": got " << got << ", expected " << expected;
  fail(file, line, message.str());
}

// `what` may leave only by an exception of type E whose message contains `part`.
template <class E, class F>
void check_throws(const char* file, int line, std::string_view part, F&& what) {
  try {
    what();
    fail(file, line, "no error; expected \"" + std::string(part) + "\"");
  } catch (const E& error) {
    if (std::string_view(error.what()).find(part) != std::string_view::npos) return;
    fail(file, line,
         "got \"" + std::string(error.what()) + "\", expected \"" + std::string(part) + "\"");
  } catch (const std::exception& error) {
    fail(file, line, "an error of another type: " + std::string(error.what()));
  }
}

}  // namespace lily::test

#define TEST(name)                                                                     \
  static void name();                                                                  \
  [[maybe_unused]] static const bool name##_is_added = ::lily::test::add(#name, name); \
  static void name()
#define CHECK(condition) \
  ((condition) ? void() : ::lily::test::fail(__FILE__, __LINE__, #condition " is false"))
#define CHECK_EQ(got, expected) \
  ::lily::test::check_equal(__FILE__, __LINE__, #got, (got), (expected))
#define CHECK_THROWS(type, part, ...) \
  ::lily::test::check_throws<type>(__FILE__, __LINE__, part, [&] { __VA_ARGS__; })

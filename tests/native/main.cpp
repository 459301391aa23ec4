// Runs the native tests whose name contains the first argument, or all of them.
#include <cstring>

#include "check.h"

int main(int count, char** arguments) {
  const char* filter = count > 1 ? arguments[1] : "";
  int run = 0;
  for (const lily::test::Test& test : lily::test::tests()) {
    if (std::strstr(test.name, filter) == nullptr) continue;
    ++run;
    const int before = lily::test::failures();
    try {
      test.run();
    } catch (const std::exception& error) {
      lily::test::fail(test.name, 0, std::string("left by an error: ") + error.what());
    }
    std::printf("%s %s\n", lily::test::failures() == before ? "ok  " : "FAIL", test.name);
  }
  std::printf("%d tests, %d failures\n", run, lily::test::failures());
  return run == 0 || lily::test::failures() != 0 ? 1 : 0;
}

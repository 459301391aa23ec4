// Turns the signals of a broken kernel (a division by zero, a trap, a stack that ran over) into
// errors of the runner. Signals from anywhere else go to whoever had them before.
#pragma once

#include <cstddef>
#include <memory>

namespace lily::fibers {

// Installs the handlers, once in the life of the process. Does nothing under AddressSanitizer,
// which reports faults itself.
void catch_faults();

// A stack for the handlers of this thread of the host, while it runs kernels: a kernel's own may be
// what is broken.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;  // null where the thread has a stack already
};

}  // namespace lily::fibers

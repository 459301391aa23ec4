// See faults.h.
#include "device/fibers/faults.h"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <mutex>

#include "device/fibers/context.h"
#include "device/fibers/runner.h"

namespace lily::fibers {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCatches = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kCatches = false;
#else
constexpr bool kCatches = true;
#endif
#else
constexpr bool kCatches = true;
#endif

constexpr std::array<int, 4> kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
std::array<struct sigaction, kSignals.size()> before;

void pass_on(int signal, siginfo_t* info, void* context) {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] != signal) continue;
    const struct sigaction& old = before[i];
    if ((old.sa_flags & SA_SIGINFO) != 0) {
      old.sa_sigaction(signal, info, context);
    } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
      old.sa_handler(signal);
    } else {
      sigaction(signal, &old, nullptr);  // and the instruction, run again, ends the process
    }
  }
}

// Goes on where the runner left the host, as if the fiber had switched there.
void on_fault(int signal, siginfo_t* info, void* context) {
  auto* user = static_cast<ucontext_t*>(context);
  Runner* runner = running_here;
#if defined(__x86_64__)
  const auto code = static_cast<uintptr_t>(user->uc_mcontext.gregs[REG_RIP]);
#else
  const auto code = static_cast<uintptr_t>(user->uc_mcontext.pc);
#endif
  void* host_stack =
      runner ? runner->leave_after_fault(signal, reinterpret_cast<uintptr_t>(info->si_addr),
                                         reinterpret_cast<const void*>(code + 1))
             : nullptr;
  if (host_stack == nullptr) return pass_on(signal, info, context);
#if defined(__x86_64__)
  user->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(host_stack);
  user->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(resume_address());
#else
  user->uc_mcontext.sp = reinterpret_cast<uintptr_t>(host_stack);
  user->uc_mcontext.pc = reinterpret_cast<uintptr_t>(resume_address());
#endif
}

}  // namespace

void catch_faults() {
  static std::once_flag once;
  if (!kCatches) return;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before[i]);
  });
}

SignalStack::SignalStack() {
  constexpr size_t kBytes = size_t{64} << 10;
  stack_t old = {};
  if (!kCatches || sigaltstack(nullptr, &old) != 0 || (old.ss_flags & SS_DISABLE) == 0) return;
  memory_ = std::make_unique<std::byte[]>(kBytes);
  stack_t mine = {};
  mine.ss_sp = memory_.get();
  mine.ss_size = kBytes;
  sigaltstack(&mine, nullptr);
}

SignalStack::~SignalStack() {
  if (!memory_) return;
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

}  // namespace lily::fibers

// See source_lines.h.
#include "device/fibers/source_lines.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <memory>

extern "C" {
// Set by the linker at the ends of this image.
extern __attribute__((visibility("hidden"))) const char __ehdr_start[];
extern __attribute__((visibility("hidden"))) const char _end[];
}

namespace lily::fibers {
namespace {

struct PipeClose {
  void operator()(FILE* pipe) const { pclose(pipe); }
};

// The part of a path from tests/ or metal/ on.
std::string shorten(const std::string& line) {
  for (const char* folder : {"/tests/metal/", "/metal/"}) {
    const size_t at = line.find(folder);
    if (at != std::string::npos) return line.substr(at + 1);
  }
  return line;
}

// Callers first have the shim's inlined lines, which tell nothing: the first line outside of it.
std::string ask_addr2line(const char* image, uintptr_t offset) {
  char command[4096];
  const int length =
      std::snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%lx 2>/dev/null", image,
                    static_cast<unsigned long>(offset));
  if (length < 0 || static_cast<size_t>(length) >= sizeof command) return {};
  const std::unique_ptr<FILE, PipeClose> pipe(popen(command, "r"));
  if (!pipe) return {};
  char text[1024];
  std::string first;
  while (std::fgets(text, sizeof text, pipe.get())) {
    std::string line(text);
    line = line.substr(0, line.find_first_of(" \n"));
    if (line.empty() || line.find('?') != std::string::npos) continue;
    if (first.empty()) first = shorten(line);
    if (line.find("metal/clang/") == std::string::npos) return shorten(line);
  }
  return first;
}

// clang's numbers of the checks that -fsanitize-trap encodes into the instruction.
const char* undefined_behaviour(unsigned code) {
  switch (code) {
    case 0: return "signed overflow of an addition";
    case 3: return "a division by zero";
    case 12: return "signed overflow of a multiplication";
    case 13: return "signed overflow of a negation";
    case 18: return "an index outside its array";
    case 21: return "signed overflow of a subtraction";
    case 22: return "a misaligned address";
    default: return "undefined behaviour";
  }
}

}  // namespace

std::string source_line(const void* return_address) {
  const auto address = reinterpret_cast<uintptr_t>(return_address) - 1;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr) {
    return "an unknown place";
  }
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(info.dli_fbase);
  std::string line = ask_addr2line(info.dli_fname, offset);
  if (!line.empty()) return line;
  char text[32];
  std::snprintf(text, sizeof text, "0x%lx", static_cast<unsigned long>(offset));
  return std::string(text) + " of " + info.dli_fname;
}

bool is_program_constant(uintptr_t address) {
  return address >= reinterpret_cast<uintptr_t>(__ehdr_start) &&
         address < reinterpret_cast<uintptr_t>(_end);
}

std::string describe_fault(int signal, const void* code, bool in_stack_guard) {
  if (in_stack_guard) return "a stack overflow: the thread's arrays need too much memory";
  switch (signal) {
    case SIGFPE: return "an integer division by zero";
    case SIGILL: {
#if defined(__x86_64__)
      // ud1 code(%eax), %eax
      unsigned char bytes[8];
      std::memcpy(bytes, static_cast<const char*>(code) - 1, sizeof bytes);
      for (size_t i = 0; i + 4 < sizeof bytes; ++i) {
        if (bytes[i] == 0x0f && bytes[i + 1] == 0xb9) return undefined_behaviour(bytes[i + 3]);
      }
#endif
      return "an instruction that traps (undefined behaviour)";
    }
    default: return "a memory fault";
  }
}

}  // namespace lily::fibers

// Turns addresses of code into words for messages, and tells a program's constants from other
// memory. Knows the object format, but no kernel.
#pragma once

#include <cstdint>
#include <string>

namespace lily::fibers {

// "metal/norm.metal:22" where debug information and addr2line are at hand, else an address that
// addr2line takes.
std::string source_line(const void* return_address);

// Whether the address is in the image of this library or program: a constant of a kernel.
bool is_program_constant(uintptr_t address);

// What a signal on a kernel's stack means. `code`: the instruction that raised it.
std::string describe_fault(int signal, const void* code, bool in_stack_guard);

}  // namespace lily::fibers

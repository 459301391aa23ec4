// See objc_runtime.h. Messages are sent by a trampoline that finds the method and jumps there with
// the caller's registers as they were, so that methods are plain functions. For x86-64.
#include "objc_runtime.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "state.h"

#if !defined(__x86_64__)
#error "the simulated Metal sends messages on x86-64 only"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LILY_MEMORY_IS_WATCHED 1
#endif
#endif

struct objc_class {
  Class isa;  // the class of the class
  std::string name;
  std::unordered_map<std::string, void*> methods;
  Class super;
};

// Selectors are their names, kept once.
struct objc_selector {
  std::string name;
};

namespace lily::simulated {
namespace {

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<objc_class>> classes;
  std::unordered_map<std::string, std::unique_ptr<objc_selector>> selectors;
};
Registry& registry() {
  static auto* all = new Registry();  // outlives every object of the process
  return *all;
}

// Both of a class and of its own class, which has the name with a '+'.
Class class_named(const std::string& name) {
  auto& known = registry().classes[name];
  if (!known) {
    known = std::make_unique<objc_class>();
    known->name = name;
    const bool is_root = name == "NSObject" || name[0] == '+';
    known->super = is_root ? nullptr : class_named("NSObject");
    known->isa = name[0] == '+' ? nullptr : class_named("+" + name);
  }
  return known.get();
}

// A pool of a thread, innermost last.
thread_local std::vector<std::vector<Object*>> pools;

Class gone_class() {
  static const Class gone = [] {
    std::lock_guard lock(registry().mutex);
    return class_named("an object that is gone");
  }();
  return gone;
}

intptr_t nothing() { return 0; }
double nothing_floating() { return 0; }

void* look_up(const Object* receiver, SEL selector) {
  for (Class at = receiver->isa; at != nullptr; at = at->super) {
    const auto found = at->methods.find(selector->name);
    if (found != at->methods.end()) return found->second;
    if (at == gone_class()) break;
  }
  return nullptr;
}

void* find_method(Object* receiver, SEL selector, void* for_nil) {
  if (receiver == nullptr) return for_nil;
  if (void* body = look_up(receiver, selector)) return body;
  violate("[" + receiver->isa->name + " " + selector->name + "]: no such method");
}

void add_object_methods() {
  add("NSObject", "retain", +[](Object* self, SEL) { return retain(self); });
  add("NSObject", "release", +[](Object* self, SEL) { release(self); });
  add("NSObject", "autorelease", +[](Object* self, SEL) { return autorelease(self); });
  add("NSObject", "init", +[](Object* self, SEL) { return self; });
  add(
      "NSObject", "respondsToSelector:", +[](Object* self, SEL, SEL selector) {
        return look_up(self, selector) != nullptr;
      });
  add("NSObject", "retainCount", +[](Object* self, SEL) { return self->references.load(); });
}

void add_all_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    add_object_methods();
    add_foundation();
    add_device();
    add_library();
    add_commands();
  });
}

}  // namespace

extern "C" void* lily_simulated_find(Object* receiver, SEL selector) {
  return find_method(receiver, selector, reinterpret_cast<void*>(&nothing));
}
extern "C" void* lily_simulated_find_floating(Object* receiver, SEL selector) {
  return find_method(receiver, selector, reinterpret_cast<void*>(&nothing_floating));
}

// The arguments wait on the stack while the method is looked up; then the frame is left, so that
// the method returns to the caller, and its exceptions unwind as if there had been no trampoline.
#define LILY_TRAMPOLINE(name, receiver, selector, finder)                              \
  __asm__(".text\n.globl " name "\n.type " name ",@function\n" name                    \
          ":\n"                                                                        \
          ".cfi_startproc\n"                                                           \
          "pushq %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n"                \
          "movq %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"                              \
          "subq $176, %rsp\n"                                                          \
          "movq %rdi, (%rsp)\nmovq %rsi, 8(%rsp)\nmovq %rdx, 16(%rsp)\n"               \
          "movq %rcx, 24(%rsp)\nmovq %r8, 32(%rsp)\nmovq %r9, 40(%rsp)\n"              \
          "movups %xmm0, 48(%rsp)\nmovups %xmm1, 64(%rsp)\nmovups %xmm2, 80(%rsp)\n"   \
          "movups %xmm3, 96(%rsp)\nmovups %xmm4, 112(%rsp)\nmovups %xmm5, 128(%rsp)\n" \
          "movups %xmm6, 144(%rsp)\nmovups %xmm7, 160(%rsp)\n"                         \
          "movq " receiver ", %rdi\nmovq " selector ", %rsi\ncall " finder             \
          "\n"                                                                         \
          "movq %rax, %r11\n"                                                          \
          "movq (%rsp), %rdi\nmovq 8(%rsp), %rsi\nmovq 16(%rsp), %rdx\n"               \
          "movq 24(%rsp), %rcx\nmovq 32(%rsp), %r8\nmovq 40(%rsp), %r9\n"              \
          "movups 48(%rsp), %xmm0\nmovups 64(%rsp), %xmm1\nmovups 80(%rsp), %xmm2\n"   \
          "movups 96(%rsp), %xmm3\nmovups 112(%rsp), %xmm4\nmovups 128(%rsp), %xmm5\n" \
          "movups 144(%rsp), %xmm6\nmovups 160(%rsp), %xmm7\n"                         \
          "leave\n.cfi_def_cfa %rsp, 8\njmp *%r11\n.cfi_endproc\n.size " name ", .-" name "\n");

LILY_TRAMPOLINE("objc_msgSend", "0(%rsp)", "8(%rsp)", "lily_simulated_find")
LILY_TRAMPOLINE("objc_msgSend_fpret", "0(%rsp)", "8(%rsp)", "lily_simulated_find_floating")
// Large results: the address where they go comes first.
LILY_TRAMPOLINE("objc_msgSend_stret", "8(%rsp)", "16(%rsp)", "lily_simulated_find")

void violate(const std::string& rule) {
  note_violation(rule);
  throw Violation("simulated Metal: " + rule);
}

void begin_object(Object& object, const char* class_name, void (*destroy)(Object*)) {
  std::lock_guard lock(registry().mutex);
  object.isa = class_named(class_name);
  object.references.store(1);
  object.destroy = destroy;
  count_alive(class_name, 1);
}

// The memory of a small object stays, so that a message to it finds a class that has no method;
// where the memory itself is watched, that says more.
void end_object(Object& object) {
#if defined(LILY_MEMORY_IS_WATCHED)
  ::operator delete(static_cast<void*>(&object));
#else
  object.isa = gone_class();
#endif
}

Object* retain(Object* object) {
  if (object != nullptr) object->references.fetch_add(1, std::memory_order_relaxed);
  return object;
}

void release(Object* object) {
  if (object == nullptr) return;
  const intptr_t before = object->references.fetch_sub(1, std::memory_order_acq_rel);
  if (before > 1) return;
  if (before < 1) violate("a reference was released twice");
  count_alive(object->isa->name, -1);
  object->destroy(object);
}

Object* autorelease(Object* object) {
  if (object == nullptr) return nullptr;
  if (pools.empty()) {
    release(object);
    violate("an object was autoreleased with no pool in place, so it lives for ever");
  }
  pools.back().push_back(object);
  return object;
}

void begin_pool() { pools.emplace_back(); }
void end_pool() {
  if (pools.empty()) violate("an autorelease pool ended on another thread than it began on");
  const std::vector<Object*> objects = std::move(pools.back());
  pools.pop_back();
  for (Object* object : objects) release(object);
}

void add_method(std::string_view class_name, const char* selector, void* body, int arguments) {
  const std::string name(selector);
  if (std::ranges::count(name, ':') != arguments) {
    std::fprintf(stderr, "simulated Metal: [%s %s] has another number of arguments\n",
                 std::string(class_name).c_str(), selector);
    std::abort();
  }
  std::lock_guard lock(registry().mutex);
  const bool is_class_method = class_name.starts_with('+');
  const Class named = class_named(std::string(class_name.substr(is_class_method ? 1 : 0)));
  (is_class_method ? named->isa : named)->methods[name] = body;
}

}  // namespace lily::simulated

using lily::simulated::registry;

extern "C" SEL sel_registerName(const char* name) {
  std::lock_guard lock(registry().mutex);
  auto& known = registry().selectors[name];
  if (!known) known = std::make_unique<objc_selector>(objc_selector{name});
  return known.get();
}

extern "C" Class objc_lookUpClass(const char* name) {
  lily::simulated::add_all_once();
  std::lock_guard lock(registry().mutex);
  const auto known = registry().classes.find(name);
  return known == registry().classes.end() ? nullptr : known->second.get();
}

extern "C" Protocol* objc_getProtocol(const char*) { return nullptr; }

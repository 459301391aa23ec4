// Inside the simulated Metal only: an Objective-C runtime as small as metal-cpp needs. Objects are
// counted, and really destroyed with their last reference; a message to one that is gone is a
// Violation (and under AddressSanitizer a use after free). Knows no class by name.
#pragma once

#include <objc/message.h>

#include <atomic>
#include <new>
#include <string>
#include <string_view>

#include "simulated.h"

namespace lily::simulated {

// Notes a broken rule and throws it.
[[noreturn]] void violate(const std::string& rule);

// What every object begins with.
struct Object {
  Class isa;
  std::atomic<intptr_t> references;
  void (*destroy)(Object*);
};

void begin_object(Object& object, const char* class_name, void (*destroy)(Object*));
void end_object(Object& object);
Object* retain(Object* object);
void release(Object* object);
// Until the innermost pool of this thread ends; without one it would never end.
Object* autorelease(Object* object);

// A new object of a class, with one reference.
template <class T>
T* make(const char* class_name) {
  T* object = new T();
  begin_object(*object, class_name, [](Object* gone) {
    T* typed = static_cast<T*>(gone);
    typed->~T();
    end_object(*typed);
  });
  return object;
}
template <class T>
T* made_autoreleased(T* object) {
  autorelease(object);
  return object;
}

// Owns one reference.
template <class T>
class Held {
 public:
  Held() = default;
  explicit Held(T* object) : object_(object) { retain(object); }
  Held(const Held& other) : Held(other.object_) {}
  Held(Held&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Held& operator=(Held other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() { release(object_); }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

// A method under its selector; "+Name" is the class itself. `body` is called as the method is sent:
// (receiver, SEL, arguments...).
void add_method(std::string_view class_name, const char* selector, void* body, int arguments);
template <class Result, class Self, class... Arguments>
void add(std::string_view class_name, const char* selector,
         Result (*body)(Self*, SEL, Arguments...)) {
  add_method(class_name, selector, reinterpret_cast<void*>(body), sizeof...(Arguments));
}

// Those that add the methods of all classes, once, before the first look-up.
void add_foundation();
void add_device();
void add_library();
void add_commands();

}  // namespace lily::simulated

// Apple's metal-cpp, with the few words that make it safe to use: ownership, autorelease pools, and
// errors as text. Included by the files of this folder only; metal_cpp.cpp holds its definitions.
#pragma once

#define METALCPP_SYMBOL_VISIBILITY_HIDDEN  // two libraries of one process may hold it
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-parameter"
#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
#pragma clang diagnostic pop

#include <string>

namespace lily::metal {

// Owns one reference.
template <class T>
using Ref = NS::SharedPtr<T>;

// Objects that Metal hands out without ownership live until the innermost pool of their thread
// ends. Threads of Python have none of their own: without a pool they would live for ever.
class Pool {
 public:
  Pool() : pool_(NS::AutoreleasePool::alloc()->init()) {}
  ~Pool() { pool_->drain(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NS::AutoreleasePool* pool_;
};

// A string for Metal; lives as long as the innermost pool.
inline NS::String* text_of(const std::string& text) {
  return NS::String::string(text.c_str(), NS::UTF8StringEncoding);
}
inline std::string text_of(const NS::String* text) {
  const char* bytes = text ? text->utf8String() : nullptr;
  return bytes ? bytes : "";
}
// What an error says of itself, and its code.
inline std::string text_of(const NS::Error* error) {
  if (error == nullptr) return "no reason given";
  return text_of(error->localizedDescription()) + " (code " + std::to_string(error->code()) + ")";
}

}  // namespace lily::metal

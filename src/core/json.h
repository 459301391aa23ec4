// A strict JSON document (RFC 8259, UTF-8), for files that strangers wrote: every limit is checked
// and every error says line and column. Knows no file, no schema and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"

namespace lily {

// What is wrong, and where in the text; callers put the file's name in front.
class JsonError : public Error {
 public:
  JsonError(uint32_t line, uint32_t column, const std::string& what);
  uint32_t line() const { return line_; }      // from 1
  uint32_t column() const { return column_; }  // from 1, in bytes

 private:
  uint32_t line_;
  uint32_t column_;
};

struct JsonLimits {
  size_t max_bytes = 100'000'000;
  size_t max_values = 2'000'000;  // bounds memory: a value takes 64 bytes, and its text
  uint32_t max_depth = 64;
};

class Json {
 public:
  enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };
  struct Member;

  // Throws JsonError. Refuses a byte-order mark, NaN and Infinity, duplicate keys, unpaired
  // surrogates, numbers beyond double, trailing text, and anything past the limits.
  static Json parse(std::string_view text, const JsonLimits& limits = {});

  Json() = default;  // null
  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  // Written without fraction and exponent, and within int64; larger ones are reals, as in Python.
  bool is_int() const { return kind() == Kind::integer; }
  bool is_number() const { return is_int() || kind() == Kind::real; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // Each throws a JsonError at this value when it is of another kind; as_double takes integers too.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  std::span<const Json> items() const;      // of an array
  std::span<const Member> members() const;  // of an object, in the order of the text

  // The member, or nullptr; O(log n). Throws when this is no object.
  const Json* find(std::string_view key) const;
  // The member; throws a JsonError when it is not there.
  const Json& at(std::string_view key) const;
  // The member, or the fallback where it is missing or null; throws when it is of another kind.
  bool bool_or(std::string_view key, bool fallback) const;
  int64_t int_or(std::string_view key, int64_t fallback) const;
  double double_or(std::string_view key, double fallback) const;
  std::string string_or(std::string_view key, std::string fallback) const;

  uint32_t line() const { return line_; }  // where the value starts
  uint32_t column() const { return column_; }
  // For messages, never longer than a line: `"yarn"`, `3`, `1e-06`, `an object of 5 members`.
  std::string describe() const;

 private:
  friend class JsonParser;
  struct Object {
    std::vector<Member> members;
    std::vector<uint32_t> by_name;  // indices into members, sorted by name
  };
  [[noreturn]] void wrong_kind(const char* expected) const;

  using Array = std::vector<Json>;
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
  uint32_t line_ = 1;
  uint32_t column_ = 1;
};

struct Json::Member {
  std::string name;
  Json value;
};

// Text from a file, made safe to print: in quotes, control bytes and non-UTF-8 escaped, cut to
// about `max_bytes`.
std::string printable(std::string_view text, size_t max_bytes = 120);

}  // namespace lily

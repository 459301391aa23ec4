// The parser is a plain recursive descent over bytes; its depth, its size and every number in it
// are bounded, so that no text can exhaust the stack or leave the range of a type.
#include "core/json.h"

#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace lily {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the well-formed UTF-8 sequence that starts at text[at], 0 where it is malformed:
// overlong forms, surrogates and code points past U+10FFFF are.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

// strtod under the C locale: the process's own may write 0,5. (from_chars for double is not in the
// standard library of older Macs.)
double to_double(const std::string& digits) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(digits.c_str(), nullptr, c_locale);
}

}  // namespace

JsonError::JsonError(uint32_t line, uint32_t column, const std::string& what)
    : Error("line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what),
      line_(line),
      column_(column) {}

class JsonParser {
 public:
  JsonParser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Json document() {
    if (text_.size() > limits_.max_bytes) {
      fail("the text has " + grouped(text_.size()) + " bytes, at most " +
           grouped(limits_.max_bytes) + " are read");
    }
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") fail("byte-order mark; JSON is plain UTF-8");
    skip_space();
    Json root = value(1);
    skip_space();
    if (at_ != text_.size()) fail("text after the end of the document");
    return root;
  }

 private:
  uint32_t column() const { return static_cast<uint32_t>(at_ - line_start_ + 1); }
  [[noreturn]] void fail(const std::string& what) const { throw JsonError(line_, column(), what); }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  [[noreturn]] void unexpected(const char* expected) const {
    if (at_end()) fail(std::string("the text ends where ") + expected + " should be");
    fail(std::string("expected ") + expected + ", found " + printable(text_.substr(at_, 1)));
  }

  void skip_space() {
    for (; !at_end(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  bool take(char c) {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }

  Json value(uint32_t depth) {
    if (++values_ > limits_.max_values) {
      fail("more than " + grouped(limits_.max_values) + " values");
    }
    Json result;
    result.line_ = line_;
    result.column_ = column();
    const char c = peek();
    if (c == '{' || c == '[') {
      if (depth > limits_.max_depth) {
        fail("nested more than " + std::to_string(limits_.max_depth) + " deep");
      }
      ++at_;
      if (c == '{') {
        object(result.value_.emplace<Json::Object>(), depth);
      } else {
        array(result.value_.emplace<Json::Array>(), depth);
      }
    } else if (c == '"') {
      result.value_ = string();
    } else if (c == '-' || is_digit(c)) {
      number(result);
    } else if (word("true")) {
      result.value_ = true;
    } else if (word("false")) {
      result.value_ = false;
    } else if (!word("null")) {
      if (text_.substr(at_, 3) == "NaN" || text_.substr(at_, 8) == "Infinity") {
        fail("NaN and Infinity are not JSON");
      }
      unexpected("a value");
    }
    return result;
  }

  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  void array(Json::Array& items, uint32_t depth) {
    skip_space();
    if (take(']')) return;
    while (true) {
      skip_space();
      items.push_back(value(depth + 1));
      skip_space();
      if (take(']')) return;
      if (!take(',')) unexpected("',' or ']'");
    }
  }

  void object(Json::Object& object, uint32_t depth) {
    skip_space();
    while (!take('}')) {
      if (!object.members.empty()) {
        if (!take(',')) unexpected("',' or '}'");
        skip_space();
      }
      if (peek() != '"') unexpected("a key in quotes");
      std::string name = string();
      skip_space();
      if (!take(':')) unexpected("':'");
      skip_space();
      object.members.push_back({std::move(name), value(depth + 1)});
      skip_space();
    }
    index(object);
  }

  static void index(Json::Object& object) {
    const std::vector<Json::Member>& members = object.members;
    std::vector<uint32_t>& order = object.by_name;
    order.resize(members.size());
    std::iota(order.begin(), order.end(), 0u);
    // Equal names stay in the order of the text, so that the error is about the later one.
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const int names = members[a].name.compare(members[b].name);
      return names < 0 || (names == 0 && a < b);
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const Json::Member& member = members[order[i]];
      if (members[order[i - 1]].name != member.name) continue;
      throw JsonError(member.value.line(), member.value.column(),
                      "the key " + printable(member.name) + " occurs twice");
    }
  }

  std::string string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_end()) fail("the text ends inside a string");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("control character inside a string");
      if (c == '\\') {
        escape(out);
        continue;
      }
      const size_t length = utf8_length(text_, at_);
      if (length == 0) fail("invalid UTF-8 inside a string");
      out.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return out;
  }

  void escape(std::string& out) {
    static constexpr std::string_view kShort = "\"\\/bfnrt";
    static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
    ++at_;
    const size_t which = at_end() ? std::string_view::npos : kShort.find(text_[at_]);
    if (which != std::string_view::npos) {
      out.push_back(kMeaning[which]);
      ++at_;
      return;
    }
    if (peek() != 'u') unexpected("an escape after '\\'");
    uint32_t code = hex_after_u();
    if (code >= 0xDC00 && code <= 0xDFFF) fail("unpaired surrogate");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (!take('\\') || peek() != 'u') fail("unpaired surrogate");
      const uint32_t low = hex_after_u();
      if (low < 0xDC00 || low > 0xDFFF) fail("unpaired surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  uint32_t hex_after_u() {
    ++at_;
    const std::string_view digits = text_.substr(at_, 4);
    uint32_t code = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, code, 16);
    if (error != std::errc() || stop != end || digits.size() != 4) fail("expected 4 hex digits");
    at_ += 4;
    return code;
  }

  void skip_digits() {
    if (!is_digit(peek())) unexpected("a digit");
    while (is_digit(peek())) ++at_;
  }

  void number(Json& result) {
    const size_t begin = at_;
    take('-');
    if (peek() == '0') {
      ++at_;
      if (is_digit(peek())) fail("a number with a leading zero");
    } else {
      skip_digits();
    }
    bool integral = true;
    if (take('.')) {
      integral = false;
      skip_digits();
    }
    if (take('e') || take('E')) {
      integral = false;
      if (!take('+')) take('-');
      skip_digits();
    }
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (integral) {
      int64_t whole = 0;
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
      if (parsed.ec == std::errc()) {
        result.value_ = whole;
        return;
      }
    }
    const double real = to_double(std::string(digits));
    if (!std::isfinite(real)) fail("the number " + printable(digits, 24) + " is too large");
    result.value_ = real;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  uint32_t line_ = 1;
  size_t values_ = 0;
};

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  return JsonParser(text, limits).document();
}

void Json::wrong_kind(const char* expected) const {
  throw JsonError(line_, column_, std::string("expected ") + expected + ", found " + describe());
}

bool Json::as_bool() const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  wrong_kind("true or false");
}

int64_t Json::as_int() const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  wrong_kind("an integer");
}

double Json::as_double() const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  wrong_kind("a number");
}

const std::string& Json::as_string() const {
  if (const std::string* value = std::get_if<std::string>(&value_)) return *value;
  wrong_kind("a string");
}

std::span<const Json> Json::items() const {
  if (const Array* value = std::get_if<Array>(&value_)) return *value;
  wrong_kind("an array");
}

std::span<const Json::Member> Json::members() const {
  if (const Object* value = std::get_if<Object>(&value_)) return value->members;
  wrong_kind("an object");
}

const Json* Json::find(std::string_view key) const {
  const Object* object = std::get_if<Object>(&value_);
  if (object == nullptr) wrong_kind("an object");
  const auto name = [&](uint32_t i) -> std::string_view { return object->members[i].name; };
  const auto found = std::lower_bound(object->by_name.begin(), object->by_name.end(), key,
                                      [&](uint32_t i, std::string_view k) { return name(i) < k; });
  if (found == object->by_name.end() || name(*found) != key) return nullptr;
  return &object->members[*found].value;
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  throw JsonError(line_, column_, "the key " + printable(key) + " is missing");
}

bool Json::bool_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  return value == nullptr || value->is_null() ? fallback : value->as_bool();
}

int64_t Json::int_or(std::string_view key, int64_t fallback) const {
  const Json* value = find(key);
  return value == nullptr || value->is_null() ? fallback : value->as_int();
}

double Json::double_or(std::string_view key, double fallback) const {
  const Json* value = find(key);
  return value == nullptr || value->is_null() ? fallback : value->as_double();
}

std::string Json::string_or(std::string_view key, std::string fallback) const {
  const Json* value = find(key);
  return value == nullptr || value->is_null() ? std::move(fallback) : value->as_string();
}

std::string Json::describe() const {
  switch (kind()) {
    case Kind::null: return "null";
    case Kind::boolean: return as_bool() ? "true" : "false";
    case Kind::integer: return std::to_string(as_int());
    case Kind::real: {
      char text[32];
      std::snprintf(text, sizeof text, "%.10g", as_double());
      return text;
    }
    case Kind::string: return printable(as_string());
    case Kind::array: return "an array of " + grouped(items().size());
    case Kind::object: return "an object of " + grouped(members().size());
  }
  return "null";
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    if (out.size() > max_bytes) return out + "...\"";
    const size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    // U+0080 to U+009F are control characters too: terminals obey them.
    const bool control =
        byte < 0x20 || byte == 0x7F ||
        (length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0);
    if (length == 0 || control) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
      at += 1;
      continue;
    }
    if (byte == '"' || byte == '\\') out.push_back('\\');
    out.append(text, at, length);
    at += length;
  }
  return out + "\"";
}

}  // namespace lily

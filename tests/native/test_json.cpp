// core/json: what is JSON, what is not, and where the error is said to be.
#include <cmath>
#include <cstdint>
#include <string>

#include "check.h"
#include "core/json.h"

namespace lily {
namespace {

void expect_error(std::string_view text, std::string_view part, int line = __builtin_LINE()) {
  test::check_throws<JsonError>(__FILE__, line, part, [&] { Json::parse(text); });
}

TEST(json_reads_every_kind) {
  const Json json = Json::parse(R"( {"a": [1, -2.5, true, false, null, "x"], "b": {}, "c": []} )");
  CHECK_EQ(json.members().size(), 3u);
  CHECK_EQ(json.members()[1].name, "b");
  const auto items = json.at("a").items();
  CHECK_EQ(items.size(), 6u);
  CHECK_EQ(items[0].as_int(), 1);
  CHECK_EQ(items[0].as_double(), 1.0);
  CHECK_EQ(items[1].as_double(), -2.5);
  CHECK(items[2].as_bool() && !items[3].as_bool() && items[4].is_null());
  CHECK_EQ(items[5].as_string(), "x");
  CHECK(json.at("b").members().empty() && json.at("c").items().empty());
  CHECK(json.find("d") == nullptr);
}

TEST(json_accessors_say_what_they_found) {
  const Json json = Json::parse("{\"n\": 1,\n  \"s\": \"x\", \"z\": null, \"r\": 1.0}");
  CHECK_THROWS(JsonError, "line 2, column 8: expected an integer, found \"x\"",
               json.at("s").as_int());
  CHECK_THROWS(JsonError, "expected an integer, found 1", json.at("r").as_int());
  CHECK_THROWS(JsonError, "line 1, column 1: the key \"gone\" is missing", json.at("gone"));
  CHECK_THROWS(JsonError, "expected an object, found 1", json.at("n").find("x"));
  CHECK_THROWS(JsonError, "expected a string, found null", json.at("z").as_string());
  CHECK_THROWS(JsonError, "expected true or false", json.bool_or("n", true));
  CHECK_EQ(json.int_or("n", 7), 1);
  CHECK_EQ(json.int_or("z", 7), 7);
  CHECK_EQ(json.int_or("gone", 7), 7);
  CHECK_EQ(json.double_or("n", 0), 1.0);
  CHECK_EQ(json.string_or("s", "y"), "x");
  CHECK_EQ(json.string_or("gone", "y"), "y");
}

TEST(json_numbers) {
  CHECK_EQ(Json::parse("9223372036854775807").as_int(), INT64_MAX);
  CHECK_EQ(Json::parse("-9223372036854775808").as_int(), INT64_MIN);
  CHECK(!Json::parse("9223372036854775808").is_int());
  CHECK_EQ(Json::parse("1000000000000000019884624838656").as_double(), 1e30);
  CHECK_EQ(Json::parse("1e-06").as_double(), 1e-6);
  CHECK_EQ(Json::parse("1E+2").as_double(), 100.0);
  CHECK_EQ(Json::parse("-0").as_int(), 0);
  CHECK_EQ(Json::parse("1e-999").as_double(), 0.0);
  for (const char* bad : {"01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "1_0", "--1", "-a"}) {
    CHECK_THROWS(JsonError, "line 1", Json::parse(bad));
  }
  for (const char* bad : {"NaN", "Infinity", "-Infinity", "nan", "[1, NaN]"}) {
    CHECK_THROWS(JsonError, "line 1", Json::parse(bad));
  }
  expect_error("[-01]", "leading zero");
  expect_error("1e999", "too large");
  expect_error(std::string(5000, '9'), "too large");
}

TEST(json_strings) {
  CHECK_EQ(Json::parse(R"("\"\\\/\b\f\n\r\t")").as_string(), "\"\\/\b\f\n\r\t");
  CHECK_EQ(Json::parse(R"("\u0041\u00e9\u20AC\ud83d\ude00")").as_string(), "Aé€😀");
  CHECK_EQ(Json::parse("\"é€😀\"").as_string(), "é€😀");
  CHECK_EQ(Json::parse(R"("a\u0000b")").as_string(), std::string("a\0b", 3));
  for (const char* bad :
       {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\ud83d\u0041")", R"("\ud83d\n")"}) {
    expect_error(bad, "unpaired surrogate");
  }
  for (const char* bad : {"\"\x80\"", "\"\xC0\x80\"", "\"\xC3\"", "\"\xED\xA0\x80\"",
                          "\"\xF4\x90\x80\x80\"", "\"\xE0\x80\x80\"", "\"\xF0\x80\x80\x80\"",
                          "\"\xFF\"", "\"\xE2\x82\"", "\"\xF8\x88\x80\x80\x80\""}) {
    expect_error(bad, "invalid UTF-8");
  }
  expect_error("\"\xE2\x82", "invalid UTF-8");
  expect_error("\"abc", "ends inside a string");
  expect_error("\"\\", "the text ends");
  expect_error("\"\\u12", "4 hex digits");
  expect_error("\"\\u12g4\"", "4 hex digits");
  expect_error("\"\\u-123\"", "4 hex digits");
  expect_error("\"\\x\"", "an escape");
  expect_error("\"a\nb\"", "control character");
  expect_error(std::string_view("\"a\0b\"", 5), "control character");
}

TEST(json_structure) {
  for (const char* bad :
       {"",          " ",         "{",       "[",        "[1",        "[1,",        "[1,]",
        "[,]",       "{\"a\"",    "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{a:1}",
        "{\"a\" 1}", "{,}",       "]",       "tru",      "True",      "1 2",        "{} x",
        "'a'",       "/* c */ 1", "nul",     "[1 2]"}) {
    CHECK_THROWS(JsonError, "line 1", Json::parse(bad));
  }
  expect_error("\xEF\xBB\xBF{}", "byte-order mark");
  expect_error(std::string_view("{}\0", 3), "text after the end");
  expect_error("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}",
               "line 3, column 7: the key \"a\" occurs twice");
  expect_error("{\"\\u0061\": 1, \"a\": 3}", "occurs twice");
  expect_error("[1,\n2,\n  x]", "line 3, column 3");
}

TEST(json_limits) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  Json::parse(nested(64));
  expect_error(nested(65), "nested more than 64 deep");
  expect_error(nested(10'000), "nested more than 64 deep");
  expect_error(std::string(1'000'000, '['), "nested more than 64 deep");
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"a\":";
  expect_error(objects, "nested more than 64 deep");
  CHECK_THROWS(JsonError, "at most 4 are read", Json::parse("[1,2]", {.max_bytes = 4}));
  CHECK_THROWS(JsonError, "more than 2 values", Json::parse("[1,2]", {.max_values = 2}));
}

TEST(json_finds_in_large_objects) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) {
    text += (i == 0 ? "" : ",") + ("\"layer." + std::to_string(i * 7919 % 100'003) + "\":") +
            std::to_string(i);
  }
  const Json json = Json::parse(text + "}");
  int wrong = 0;
  for (int i = 0; i < 100'000; ++i) {
    const Json* found = json.find("layer." + std::to_string(i * 7919 % 100'003));
    wrong += found == nullptr || found->as_int() != i;
  }
  CHECK_EQ(wrong, 0);
}

TEST(json_survives_every_cut_and_flip) {
  const std::string text = R"({"a":[1,-2.5e3,true,null,"\ud83d\ude00é"],"b":{"c":{}}})";
  for (size_t cut = 0; cut < text.size(); ++cut) {
    CHECK_THROWS(JsonError, "line 1", Json::parse(text.substr(0, cut)));
  }
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      Json::parse(flipped);
    } catch (const JsonError&) {
    }
  }
}

TEST(json_printable_hides_control_characters) {
  CHECK_EQ(printable("a\"b\\\n\x1b[31m\x7f\xC2\x9B\xFFé"),
           "\"a\\\"b\\\\\\x0a\\x1b[31m\\x7f\\xc2\\x9b\\xffé\"");
  CHECK_EQ(printable(std::string(500, 'x'), 10), "\"xxxxxxxxxx...\"");
}

}  // namespace
}  // namespace lily

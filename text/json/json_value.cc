#include "text/json/json_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

using jinja::Value;

class JsonParser {
 public:
  JsonParser(std::string_view text, RepeatedKeys repeated, std::vector<UnrepresentableNumber>* odd)
      : text_(text), repeated_(repeated), odd_(odd) {}

  Value run() {
    Value out = value(0);
    space();
    if (at_ < text_.size()) wrong("expected the end after the JSON value, found " + found());
    return out;
  }

 private:
  [[noreturn]] void wrong(std::string message) const { throw JsonFault{std::move(message), at_}; }
  // Describes the value at this place, for a message.
  std::string found() const {
    if (at_ >= text_.size()) return "the end";
    const auto byte = static_cast<unsigned char>(text_[at_]);
    return byte < 0x20 || byte >= 0x7f ? fmt::format("byte 0x{:02x}", byte) : fmt::format("'{}'", text_[at_]);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }
  bool skip(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Value value(int depth) {
    if (depth >= Value::kMaxNesting) wrong(fmt::format("it is nested deeper than {} levels", Value::kMaxNesting));
    space();
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return Value(string());
      case 't':
        return word("true", Value(true));
      case 'f':
        return word("false", Value(false));
      case 'n':
        return word("null", Value());
      default:
        return number(depth);
    }
  }
  Value word(std::string_view word, Value value) {
    if (!text_.substr(at_).starts_with(word)) wrong("expected a value, found " + found());
    at_ += word.size();
    return value;
  }
  Value array(int depth) {
    ++at_;
    std::vector<Value> out;
    if (skip(']')) return Value::list({});
    do out.push_back(value(depth + 1));
    while (skip(','));
    if (!skip(']')) wrong("expected , or ] in a list, found " + found());
    return Value::list(std::move(out));
  }
  Value object(int depth) {
    ++at_;
    std::vector<std::pair<Value, Value>> out;
    std::set<std::string> names;
    if (skip('}')) return Value::dict({});
    do {
      space();
      if (peek() != '"') wrong("expected the name of a field in quotes, found " + found());
      const std::size_t begin = at_;
      Value key{string()};
      if (repeated_ == RepeatedKeys::refused && !names.insert(key.text()).second) {
        at_ = begin;
        wrong(fmt::format("the field \"{}\" occurs twice in an object", key.text()));
      }
      if (!skip(':')) wrong("expected : after the name of a field, found " + found());
      if (depth == 0) field_ = key.text();
      out.emplace_back(std::move(key), value(depth + 1));
    } while (skip(','));
    if (!skip('}')) wrong("expected , or } in an object, found " + found());
    return Value::dict(std::move(out));
  }

  Value number(int depth) {
    const std::size_t begin = at_;
    const auto digits = [&] {
      const std::size_t first = at_;
      while (peek() >= '0' && peek() <= '9') ++at_;
      return at_ > first;
    };
    if (peek() == '-') ++at_;
    for (const std::string_view word : {"NaN", "Infinity"}) {
      if (!text_.substr(at_).starts_with(word) || (word == "NaN" && at_ > begin)) continue;
      at_ += word.size();
      const double size =
          word == "NaN" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
      note_odd(begin, "there is no such number in JSON: leave it out, or write null");
      return text_[begin] == '-' ? -size : size;
    }
    const bool zero = peek() == '0';
    if (!digits()) wrong("expected a value, found " + found());
    if (zero && at_ - begin > (text_[begin] == '-' ? 2U : 1U)) wrong("a number begins with 0");
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      ++at_;
      if (!digits()) wrong("expected a digit after the decimal point of a number, found " + found());
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) wrong("expected a digit in the exponent of a number, found " + found());
    }
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    if (std::int64_t out = 0; whole && std::from_chars(first, last, out).ec == std::errc()) return out;
    if (whole && (odd_ || depth > 1)) note_odd(begin, "an integer is beyond 64 bits: make it a string");
    double out = 0;
    if (std::from_chars(first, last, out).ec == std::errc::result_out_of_range) {
      const auto exponent = std::string_view(first, static_cast<std::size_t>(last - first)).find_last_of("eE");
      const bool small = exponent != std::string_view::npos && first[exponent + 1] == '-';
      out = small ? 0 : std::numeric_limits<double>::infinity();
      if (!small && !whole && odd_) note_odd(begin, "a number is beyond what a double holds: make it a string");
      if (text_[begin] == '-') out = -out;
    }
    return out;
  }

  void note_odd(std::size_t begin, const char* what) {
    if (odd_) return odd_->push_back({field_, std::string(text_.substr(begin, at_ - begin)), begin});
    at_ = begin;
    wrong(what);
  }

  std::string string() {
    const std::size_t begin = at_++;
    std::string out;
    for (;;) {
      const std::size_t end = text_.find_first_of("\"\\", at_);
      const std::string_view plain = text_.substr(at_, end - at_);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        if (static_cast<unsigned char>(plain[i]) >= 0x20) continue;
        at_ += i;
        wrong("a string contains a control character: write it with a backslash (\\n for a line break)");
      }
      if (end == std::string_view::npos) {
        at_ = begin;
        wrong("a string is not closed with \"");
      }
      out += plain;
      at_ = end + 1;
      if (text_[end] == '"') break;
      escape(out);
    }
    if (!is_valid_utf8(out)) {
      at_ = begin;
      wrong("a string is not UTF-8 (iconv -f WINDOWS-1252 -t UTF-8 converts a file from an older Windows)");
    }
    return out;
  }
  void escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (const std::size_t known = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
        known != std::string_view::npos) {
      out += kMeant[known];
      ++at_;
      return;
    }
    if (peek() != 'u') wrong("there is no escape of " + found());
    ++at_;
    std::uint32_t code = unit();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const std::uint32_t low = unit();
      if (low < 0xdc00 || low > 0xdfff) wrong("half of a surrogate pair is missing");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code < 0xe000) wrong("half of a surrogate pair is missing");
    append_character(static_cast<char32_t>(code), out);
  }
  // Reads four hexadecimal digits.
  std::uint32_t unit() {
    std::uint32_t out = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    if (digits.size() < 4 || error != std::errc() || rest != digits.data() + 4)
      wrong("expected four hexadecimal digits after \\u");
    at_ += 4;
    return out;
  }

  std::string_view text_;
  RepeatedKeys repeated_;
  std::vector<UnrepresentableNumber>* odd_;
  std::string field_;  // the field of the outermost object whose value is being read
  std::size_t at_ = 0;
};

}  // namespace

Value parse_json(std::string_view text, RepeatedKeys repeated, std::vector<UnrepresentableNumber>* odd) {
  return JsonParser(text, repeated, odd).run();
}

std::string_view kind_text(const jinja::Value& value) {
  using jinja::Kind;
  switch (value.kind()) {
    case Kind::none:
      return "null";
    case Kind::boolean:
      return value.boolean() ? "true" : "false";
    case Kind::integer:
      return "an integer";
    case Kind::real:
      return "a number";
    case Kind::text:
      return "a string";
    case Kind::list:
      return "a list";
    case Kind::dict:
      return "an object";
    default:
      return value.type_name();
  }
}

bool is_empty_value(const jinja::Value& value) {
  using jinja::Kind;
  const bool holds = value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::dict);
  return value.is(Kind::none) || (holds && !value.truthy());
}

}  // namespace strata::text

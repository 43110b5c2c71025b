#include "text/template/values/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/template/values/arguments.h"
#include "text/template/values/python_text.h"

namespace strata::text::jinja {
namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, grouped = false;
  std::size_t width = 0;
  std::optional<std::size_t> precision;
};

constexpr std::size_t kMostWidth = 1 << 20, kMostPrecision = 1000;

std::size_t number_at(std::string_view text, std::size_t& at, std::size_t most) {
  std::size_t out = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    out = 10 * out + static_cast<std::size_t>(text[at] - '0');
    if (out > most) throw Fault(fmt::format("a width or precision of a format is above {}", most));
  }
  return out;
}

std::string padded(std::string text, const Spec& spec, char usual_align) {
  const std::size_t length = length_of(text);
  if (spec.width <= length) return text;
  const std::size_t missing = spec.width - length;
  const char align = spec.align != 0 ? spec.align : usual_align;
  const auto filled = [&](std::size_t n) {
    std::string out;
    for (std::size_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  if (align == '=') {  // padding between the sign and the digits
    const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.insert(sign, filled(missing));
  }
  const std::size_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  return filled(left) + text + filled(missing - left);
}

std::string grouped(std::string digits) {
  std::size_t end = digits.find_first_not_of("-+ 0123456789");
  if (end == std::string::npos) end = digits.size();
  const std::size_t begin = digits.find_first_of("0123456789");
  for (std::size_t at = end; at > begin + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string number_text(const Value& value, const Spec& spec) {
  std::string pattern = "{:";
  if (spec.sign != '-') pattern += spec.sign;
  if (spec.alternate) pattern += '#';
  std::string out;
  constexpr std::string_view kIntegers = "dxXobc";
  if (!value.is(Kind::real) && (spec.type == 0 || kIntegers.find(spec.type) != std::string_view::npos)) {
    if (spec.precision) throw Fault("an int is formatted without a precision");
    if (spec.type == 'c') {
      if (value.integer() < 0 || value.integer() > 0x10ffff) throw Fault("%c needs a character's number");
      append_character(static_cast<char32_t>(value.integer()), out);
      return out;
    }
    pattern += spec.type == 0 ? 'd' : spec.type;
    out = fmt::format(fmt::runtime(pattern + "}"), value.integer());
  } else {
    const bool percent = spec.type == '%';
    if (spec.type == 0 && !spec.precision) {
      out = repr_of(value.real());
      if (spec.sign != '-' && !out.starts_with('-')) out.insert(0, 1, spec.sign);
    } else {
      pattern += fmt::format(".{}", spec.precision.value_or(6));
      pattern += percent ? 'f' : spec.type == 0 ? 'g' : spec.type;
      out = fmt::format(fmt::runtime(pattern + "}"), percent ? 100 * value.real() : value.real());
      if (percent) out += '%';
    }
  }
  return spec.grouped ? grouped(std::move(out)) : out;
}

std::string formatted(Runtime& runtime, const Value& value, const Spec& spec) {
  constexpr std::string_view kNumbers = "dxXobceEfFgG%";
  if (value.is_number() && !(value.is(Kind::boolean) && spec.type == 0)) {
    if (spec.type != 0 && kNumbers.find(spec.type) == std::string_view::npos)
      throw Fault(fmt::format("there is no format '{}' for a number", spec.type));
    if (value.is(Kind::real) && spec.type != 0 && std::string_view("dxXobc").find(spec.type) != std::string_view::npos)
      throw Fault(fmt::format("the format '{}' is for an int, not a float", spec.type));
    return padded(number_text(value, spec), spec, '>');
  }
  if (spec.type != 0 && spec.type != 's') throw Fault(fmt::format("the format '{}' is for a number", spec.type));
  std::string text = value.to_text(runtime);
  if (spec.precision) text.resize(byte_of(text, *spec.precision));
  return padded(std::move(text), spec, '<');
}

Spec spec_of(std::string_view text) {
  Spec out;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const std::size_t first = character_bytes(text[0]);
    if (text.size() > first && is_align(text[first])) {
      out.fill = std::string(text.substr(0, first));
      out.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      out.align = text[at++];
    }
  }
  const auto next = [&](std::string_view one_of) {
    return at < text.size() && one_of.find(text[at]) != std::string_view::npos ? text[at++] : '\0';
  };
  if (const char sign = next("+- ")) out.sign = sign;
  out.alternate = next("#") != 0;
  if (next("0") != 0) {
    if (out.align == 0) {
      out.align = '=';
      out.fill = "0";
    }
  }
  out.width = number_at(text, at, kMostWidth);
  out.grouped = next(",") != 0;
  if (next(".") != 0) out.precision = number_at(text, at, kMostPrecision);
  out.type = next("sdxXobceEfFgG%");
  if (at != text.size()) throw Fault(fmt::format("the format '{}' is not supported", text));
  return out;
}

// One field of %: its text, and where the pattern continues.
class Percent {
 public:
  Percent(Runtime& runtime, const Value& value) : runtime_(runtime), value_(value) {}

  std::string field(std::string_view pattern, std::size_t& at) {
    Spec spec;
    const Value* named = nullptr;
    if (at < pattern.size() && pattern[at] == '(') {
      const std::size_t end = pattern.find(')', at);
      if (end == std::string_view::npos || !value_.is(Kind::dict)) throw Fault("%(name) needs a dict");
      named = value_.find(pattern.substr(at + 1, end - at - 1));
      if (!named) throw Fault(fmt::format("%: there is no key '{}'", pattern.substr(at + 1, end - at - 1)));
      at = end + 1;
    }
    spec.align = '>';
    for (; at < pattern.size() && std::string_view("-+ 0#").find(pattern[at]) != std::string_view::npos; ++at) {
      if (pattern[at] == '-') {
        spec.align = '<';
        spec.fill = " ";
      }
      if (pattern[at] == '0' && spec.align != '<') {
        spec.align = '=';
        spec.fill = "0";
      }
      if (pattern[at] == '+' || pattern[at] == ' ') spec.sign = pattern[at];
      if (pattern[at] == '#') spec.alternate = true;
    }
    spec.width = number_at(pattern, at, kMostWidth);
    if (at < pattern.size() && pattern[at] == '.') spec.precision = number_at(pattern, ++at, kMostPrecision);
    if (at == pattern.size()) throw Fault("a format of % is not complete");
    const char type = pattern[at++];
    if (type == '%') return "%";
    return converted(named ? *named : next(), type, spec);
  }
  // Throws Fault if there are values left.
  void finish() const {
    if (value_.is(Kind::tuple) ? next_ < value_.items().size() : next_ == 0 && !value_.is(Kind::dict))
      throw Fault("%: not all values have a place in the text");
  }

 private:
  const Value& next() {
    if (value_.is(Kind::tuple)) {
      if (next_ == value_.items().size()) throw Fault("%: there are fewer values than places in the text");
      return value_.items()[next_++];
    }
    if (next_++ > 0) throw Fault("%: there are fewer values than places in the text");
    return value_;
  }
  std::string converted(const Value& value, char type, Spec spec) {
    if (type == 's' || type == 'r') {
      if (spec.align == '=') spec = {.align = '>', .width = spec.width, .precision = spec.precision};
      Value text(type == 'r' ? value.to_repr(runtime_) : value.to_text(runtime_));
      runtime_.take(text.text().size());
      return formatted(runtime_, text, spec);
    }
    if (value.is(Kind::undefined)) throw Fault(value.why());
    if (!value.is_number()) throw Fault(fmt::format("%{} needs a number, not a {}", type, value.type_name()));
    const bool integer = std::string_view("diuxXoc").find(type) != std::string_view::npos;
    if (!integer && std::string_view("eEfFgG").find(type) == std::string_view::npos)
      throw Fault(fmt::format("there is no format %{}", type));
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (!integer) return formatted(runtime_, Value(value.real()), spec);
    if (value.is(Kind::real) && spec.type != 'd') throw Fault(fmt::format("%{} needs an int, not a float", type));
    if (value.is(Kind::real) && !(value.real() > -9.2e18 && value.real() < 9.2e18)) throw Fault("%d: too large");
    return formatted(runtime_, Value(value.is(Kind::real) ? static_cast<std::int64_t>(value.real()) : value.integer()),
                     spec);
  }

  Runtime& runtime_;
  const Value& value_;
  std::size_t next_ = 0;
};

// One field of str.format.
class Braces {
 public:
  Braces(Runtime& runtime, const Arguments& arguments) : runtime_(runtime), arguments_(arguments) {}

  std::string field(std::string_view text) {
    const std::size_t colon = text.find(':');
    std::string_view name = text.substr(0, colon);
    const std::string_view spec = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    if (spec.find('{') != std::string_view::npos) throw Fault("a field in the format of a field is not supported");
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    Value value = value_of(name);
    if (conversion == 'r')
      value = runtime_.text(value.to_repr(runtime_));
    else if (conversion == 's')
      value = runtime_.text(value.to_text(runtime_));
    else if (conversion != 0)
      throw Fault(fmt::format("there is no conversion !{}", conversion));
    return formatted(runtime_, value, spec_of(spec));
  }

 private:
  Value value_of(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    for (std::size_t at = end; at < name.size();) {
      if (name[at] == '[') {
        const std::size_t close = name.find(']', at);
        if (close == std::string_view::npos) throw Fault("a [ of a format is not closed");
        const std::string key(name.substr(at + 1, close - at - 1));
        std::size_t digits = 0;
        const std::size_t number = number_at(key, digits, kMostWidth);
        const bool is_number = !key.empty() && digits == key.size();
        value = runtime_.item(value, is_number ? Value(static_cast<std::int64_t>(number)) : Value(key));
        at = close + 1;
      } else if (name[at] == '.') {
        const std::size_t close = std::min(name.find_first_of(".[", at + 1), name.size());
        value = runtime_.attribute(value, std::string(name.substr(at + 1, close - at - 1)));
        at = close;
      } else {
        throw Fault("a field of a format is malformed");
      }
    }
    return value;
  }
  Value first(std::string_view name) {
    std::size_t at = 0;
    const std::size_t number = name.empty() ? next_++ : number_at(name, at, kMostWidth);
    if (name.empty() || at == name.size()) {
      if (number >= arguments_.positional.size()) throw Fault(fmt::format("format has no argument {}", number));
      return arguments_.positional[number];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    throw Fault(fmt::format("format has no argument '{}'", name));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view pattern, const Value& value) {
  std::string out;
  Percent percent(runtime, value);
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '%') {
      out += pattern[at++];
      continue;
    }
    const std::string field = percent.field(pattern, ++at);
    runtime.take(field.size());
    out += field;
  }
  percent.finish();
  return out;
}

std::string format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments) {
  std::string out;
  Braces braces(runtime, arguments);
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    const bool twice = at + 1 < pattern.size() && pattern[at + 1] == c;
    if ((c == '{' || c == '}') && twice) {
      out += c;
      ++at;
    } else if (c == '}') {
      throw Fault("a format has a single }");
    } else if (c == '{') {
      const std::size_t end = pattern.find('}', at);
      if (end == std::string_view::npos) throw Fault("a { of a format is not closed");
      const std::string field = braces.field(pattern.substr(at + 1, end - at - 1));
      runtime.take(field.size());
      out += field;
      at = end;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace strata::text::jinja

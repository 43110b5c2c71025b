#include "text/template/values/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/values/python_text.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  void write(const Value& value) {
    meter_.step();
    meter_.grown_to(out_.size());
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out_ += fmt::format("{}", value.integer());
        return;
      case Kind::real:
        out_ += number(value.real());
        return;
      case Kind::text:
        return text(value.text());
      case Kind::list:
      case Kind::tuple:
        return bracketed("[]", value.items(), [&](const Value& item) { write(item); });
      case Kind::dict:
        return dict(value.pairs());
      case Kind::undefined:
        throw Fault(value.why() + " (and cannot be written as JSON)");
      default:
        throw Fault("a {} cannot be written as JSON: use its content, for example with |list", value.type_name());
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return repr_of(value);
  }
  void text(std::string_view text) {
    meter_.read(text.size());
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    out_ += '"';
    for (std::size_t at = 0; at < text.size(); at += character_length(text[at])) {
      const char32_t code = character_at(text, at).code;
      const std::size_t named = code < 0x80 ? kNamed.find(static_cast<char>(code)) : std::string_view::npos;
      if (named != std::string_view::npos) {
        out_ += '\\';
        out_ += kNames[named];
      } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7e)) {
        escape(static_cast<std::uint32_t>(code));
      } else {
        out_ += text.substr(at, character_length(text[at]));
      }
    }
    out_ += '"';
  }
  // Escapes in UTF-16 code units.
  void escape(std::uint32_t code) {
    if (code >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
    } else {
      out_ += fmt::format("\\u{:04x}", code);
    }
  }
  void separate(const std::string& text) {
    meter_.grown_to(out_.size() + text.size());
    meter_.read(text.size());
    out_ += text;
  }
  void break_line() {
    if (!style_.indent) return;
    const std::size_t bytes = static_cast<std::size_t>(level_) * style_.indent->size();
    meter_.grown_to(out_.size() + bytes);
    meter_.read(bytes);
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }
  template <typename Items, typename Each>
  void bracketed(std::string_view brackets, const Items& items, const Each& each) {
    out_ += brackets[0];
    ++level_;
    for (const auto& item : items) {
      if (&item != &items.front()) separate(style_.between_items);
      break_line();
      each(item);
    }
    --level_;
    if (!items.empty()) break_line();
    out_ += brackets[1];
  }
  void dict(const std::vector<std::pair<Value, Value>>& pairs) {
    std::vector<const std::pair<Value, Value>*> items;
    items.reserve(pairs.size());
    for (const auto& pair : pairs) items.push_back(&pair);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return less(a->first, b->first, meter_); });
    bracketed("{}", items, [&](const auto* item) {
      key(item->first);
      separate(style_.after_key);
      write(item->second);
    });
  }
  void key(const Value& value) {
    switch (value.kind()) {
      case Kind::text:
        return text(value.text());
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out_ += '"';
        write(value);
        out_ += '"';
        return;
      default:
        throw Fault("a {} cannot be a key in JSON", value.type_name());
    }
  }

  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string json_text(const Value& value, const JsonStyle& style, Meter& meter) {
  Writer writer(style, meter);
  writer.write(value);
  return writer.take();
}

std::string json_text(const Value& value, const JsonStyle& style) {
  Meter meter;
  return json_text(value, style, meter);
}

}  // namespace strata::text::jinja

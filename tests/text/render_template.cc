// Renders chat templates for scripts/check_templates.py: a line of JSON in, {"template": text, "variables": object}, a
// line of JSON out, {"text": text, "generated": [[begin, end], ...] in characters} or {"error": text}.
#include <fmt/format.h>

#include <ctime>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/json/json_value.h"
#include "text/template/template.h"
#include "text/template/values/json_text.h"
#include "text/template/values/python_text.h"

namespace {

namespace jinja = strata::text::jinja;
using jinja::Value;

Value field(std::string name, Value value) {
  return Value::dict({{Value(std::move(name)), std::move(value)}});
}

Value answer(const Value& request) {
  // The time is the one that the script gives to transformers: 2026-03-04 05:06:07, a Wednesday.
  std::tm now{
      .tm_sec = 7, .tm_min = 6, .tm_hour = 5, .tm_mday = 4, .tm_mon = 2, .tm_year = 126, .tm_wday = 3, .tm_yday = 62};
  try {
    const jinja::Template made(request.find("template")->text(), "template");
    const jinja::Rendered rendered = made.render(*request.find("variables"), {}, now);
    std::vector<Value> generated;
    for (const auto& [begin, end] : rendered.generated) {
      const auto place = [&](std::size_t byte) {
        return Value(static_cast<std::int64_t>(jinja::length_of(std::string_view(rendered.text).substr(0, byte))));
      };
      generated.push_back(Value::list({place(begin), place(end)}));
    }
    return Value::dict({{Value(std::string("text")), Value(rendered.text)},
                        {Value(std::string("generated")), Value::list(std::move(generated))},
                        {Value(std::string("lost")), Value(rendered.lost)}});
  } catch (const strata::Error& error) {
    return field("error", Value(std::string(error.what())));
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << jinja::json_text(answer(strata::text::parse_json(line)), {}) << std::endl;
    } catch (const strata::text::JsonFault& fault) {
      fmt::print(stderr, "column {}: {}\n", fault.at + 1, fault.message);
      return 1;
    }
  }
  return 0;
}

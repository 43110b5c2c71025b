#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "text/json/json_value.h"
#include "text/template/template.h"
#include "text/unicode/utf8.h"

// Any bytes are a template or an Error. A template renders to UTF-8 with ordered marks inside the text, or ends with an
// Error within its limits. Any bytes are JSON, or have a fault at a place inside them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strata::text;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const jinja::Value variables = parse_json(
      R"({"messages": [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hé\n"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1.5]}}}]},
          {"role": "tool", "content": "x"}, {"role": "assistant", "content": "Hi"}],
          "tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 3})");
  try {
    const jinja::Template made(text, "input");
    const jinja::Rendered out = made.render(variables, {.steps = 20'000, .bytes = 1 << 20});
    if (!is_valid_utf8(out.text)) std::abort();
    std::size_t done = 0;
    for (const auto& [begin, end] : out.generated) {
      if (begin < done || end < begin || end > out.text.size()) std::abort();
      done = end;
    }
  } catch (const strata::Error&) {
  }
  try {
    (void)parse_json(text);
  } catch (const JsonFault& fault) {
    if (fault.at > size) std::abort();
  }
  return 0;
}

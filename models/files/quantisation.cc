#include "models/files/quantisation.h"

#include <algorithm>

#include "base/error.h"

namespace strata::models {

std::optional<Quantisation> quantisation_of(const Config& config) {
  const auto key = [](const char* name) { return std::string("quantization_config.") + name; };
  // Its first files name no method.
  const std::string method = config.json(key("quant_method"));
  if ((method != R"("bitsandbytes")" && method != "null") || config.json(key("load_in_4bit")) != "true")
    return std::nullopt;
  if (const std::string type = config.text_or(key("bnb_4bit_quant_type"), "fp4"); type != "nf4")
    fail(Exit::usage,
         "{} is \"{}\": of bitsandbytes' 4-bit formats only \"nf4\" is supported; quantise the model again with it, or "
         "give the original model",
         config.describe(key("bnb_4bit_quant_type")), type);
  const bool twice = config.bool_or(key("bnb_4bit_use_double_quant"), false);
  return Quantisation{twice ? device::StorageFormat::nf4 : device::StorageFormat::nf4_plain,
                      config.texts(key("llm_int8_skip_modules"))};
}

bool lies_in(std::span<const std::string> modules, std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::ranges::any_of(
      modules, [&](const std::string& module) { return tensor.starts_with(module) || tensor.ends_with(module); });
}

}  // namespace strata::models

#include "models/layers/rotary_table.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "models/families/families.h"

namespace strata::models {

double RotaryTable::frequency(std::size_t i) const {
  const double plain = 1.0 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim));
  if (!by_frequency) return plain / factor;
  const double turns = original_positions * plain / (2 * std::numbers::pi);
  if (turns > high_frequency) return plain;
  if (turns < low_frequency) return plain / factor;
  const double smooth = (turns - low_frequency) / (high_frequency - low_frequency);
  return (1 - smooth) * plain / factor + smooth * plain;
}

void RotaryTable::fill(std::size_t positions, std::byte* constants) const {
  const std::size_t half = head_dim / 2;
  auto* cos = reinterpret_cast<float*>(constants);
  float* sin = cos + positions * half;
  for (std::size_t i = 0; i < half; ++i) {
    const auto step = static_cast<float>(frequency(i));
    for (std::size_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * step;
      cos[p * half + i] = std::cos(angle);
      sin[p * half + i] = std::sin(angle);
    }
  }
}

RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions) {
  RotaryTable table{.head_dim = head_dim};
  for (const char* key : {"rope_parameters", "rope_scaling"})
    config.require_object(key,
                          "an object with keys without dots, such as {\"rope_type\": \"linear\", \"factor\": 2.0} "
                          "(in TOML: {rope_type = \"linear\", factor = 2.0})");
  table.theta = positive_or(config, "rope_parameters.rope_theta", positive_or(config, "rope_theta", table.theta));
  config.ignore({"rope_theta", "rope_parameters", "rope_scaling"});
  for (const char* key : {"rope_parameters.partial_rotary_factor", "partial_rotary_factor"})
    if (config.number_or(key, 1.0) != 1.0)
      fail(Exit::usage, "{} is not 1, which is not built yet", config.describe(key));

  const bool v5 = config.has("rope_parameters.rope_theta") || config.has("rope_parameters.rope_type");
  for (const char* key : {"rope_scaling.rope_type", "rope_scaling.type", "rope_scaling.factor"})
    if (v5 && config.has(key))
      fail(
          Exit::usage,
          "{} is given beside rope_parameters, which counts where both are: set rope_parameters.rope_type and the keys "
          "beside it instead",
          config.describe(key));
  const std::string group = v5 ? "rope_parameters." : "rope_scaling.";
  const std::string kind_key = group + (config.has(group + "rope_type") ? "rope_type" : "type");
  const std::string kind = config.text_or(kind_key, "default");
  (void)config.text_or(group + "type", "");  // the older spelling, which says nothing beside the newer one
  if (kind == "default") return table;
  if (kind != "linear" && kind != "llama3")
    fail(Exit::usage, "{} is \"{}\", which is not built yet; default, linear and llama3 are", config.describe(kind_key),
         kind);
  const auto positive = [&](const char* name) {
    (void)config.require_number(group + name);
    return positive_or(config, group + name, 1);
  };
  table.factor = positive("factor");
  table.by_frequency = kind == "llama3";
  if (table.by_frequency) {
    table.low_frequency = positive("low_freq_factor");
    table.high_frequency = positive("high_freq_factor");
    table.original_positions =
        positive_or(config, group + "original_max_position_embeddings", static_cast<double>(max_positions));
  }
  return table;
}

}  // namespace strata::models

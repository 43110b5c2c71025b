#include "models/layers/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "models/families/families.h"

namespace strata::models {
namespace {

constexpr const char* kAnObject =
    "an object with keys without dots, such as {\"rope_type\": \"linear\", \"factor\": 2.0} "
    "(in TOML: {rope_type = \"linear\", factor = 2.0})";

// A kind of positions that is not supported, by transformers' name, and the remedy.
struct Refused {
  std::string_view type, remedy;
};
constexpr std::string_view kOfFrequencies = "it has a factor for each frequency: use a version of the model without it";
constexpr Refused kRefused[] = {
    {"longrope", kOfFrequencies},
    {"su", kOfFrequencies},
    {"proportional", "it rotates a part of each head: use a model that rotates all of it"},
    {"mrope", "it belongs to models that see images: use the text model"},
};

// "0.1 m ln(s) + 1" in the paper, for m = 1.
double yarn_magnitude(double scale, double m) {
  return scale <= 1 ? 1 : 0.1 * m * std::log(scale) + 1;
}

// The keys of rotary positions with the prefix `over`; a key that is missing is read with the prefix `under`.
struct Group {
  const Config& config;
  std::string over, under = {};

  std::string key(std::string_view name) const {
    std::string first = over + std::string(name);
    return under.empty() || config.has(first) || config.is_null(first) ? first : under + std::string(name);
  }
  bool has(std::string_view name) const { return config.has(key(name)); }
  double number(std::string_view name, double otherwise) const { return config.number_or(key(name), otherwise); }
  double positive(std::string_view name) const {
    (void)config.require_number(key(name));
    return positive_or(config, key(name), 1);
  }
  double positive_if_there(std::string_view name, double otherwise) const {
    return positive_or(config, key(name), otherwise);
  }
};

// Dynamic scaling begins above max_position_embeddings, which no sequence exceeds here.
RotaryTable::Scaling read_dynamic(const Group& group, const std::string& key) {
  const Config& config = group.config;
  if (group.has("original_max_position_embeddings"))
    fail(Exit::usage, "{} is \"dynamic\", which is not supported with {}: leave that out", config.describe(key),
         group.key("original_max_position_embeddings"));
  (void)group.number("factor", 1);
  config.add_note(
      fmt::format("{} is \"dynamic\": positions are scaled only above max_position_embeddings, which no sequence "
                  "exceeds here",
                  config.describe(key)));
  return RotaryTable::Scaling::none;
}

RotaryTable::Scaling read_scaling(const Group& group) {
  const Config& config = group.config;
  const std::string key = group.key(group.has("rope_type") ? "rope_type" : "type");
  const std::string type = config.text_or(key, "default");
  (void)config.text_or(group.key("type"), "");  // the older spelling, which is redundant next to the newer one
  if (type == "default") return RotaryTable::Scaling::none;
  if (type == "linear") return RotaryTable::Scaling::linear;
  if (type == "llama3") return RotaryTable::Scaling::llama3;
  if (type == "yarn") return RotaryTable::Scaling::yarn;
  if (type == "dynamic") return read_dynamic(group, key);
  const Refused* known = std::ranges::find(kRefused, type, &Refused::type);
  if (known == std::end(kRefused)) known = nullptr;
  fail(Exit::usage, "{} is \"{}\", which is not supported; default, dynamic, linear, llama3 and yarn are{}{}",
       config.describe(key), type, known ? "; " : "", known ? known->remedy : "");
}

// The factor of cos and sin. Its square is the temperature of the softmax.
double read_attention_factor(const Group& group, double factor) {
  const double m = group.number("mscale", 0), all = group.number("mscale_all_dim", 0);
  if (group.has("attention_factor")) return group.positive("attention_factor");
  return m != 0 && all != 0 ? yarn_magnitude(factor, m) / yarn_magnitude(factor, all) : yarn_magnitude(factor, 1);
}

// As in transformers, 0 means the default.
double read_turns(const Group& group, std::string_view name, double otherwise) {
  const double turns = positive_or(group.config, group.key(name), otherwise, Zero::allowed);
  return turns == 0 ? otherwise : turns;
}

RotaryTable read_group(const Group& group, std::size_t head_dim, std::size_t max_positions, double theta,
                       const std::string& original_key, const std::string& truncate_key) {
  const Config& config = group.config;
  RotaryTable table{.head_dim = head_dim};
  table.theta = group.positive_if_there("rope_theta", theta);
  const std::string own_part = group.key("partial_rotary_factor");
  const std::string part = config.has(own_part) ? own_part : "partial_rotary_factor";
  if (config.number_or(part, 1.0) != 1.0)
    fail(Exit::usage, "{} is not 1, which is not supported: use a model whose positions rotate whole heads",
         config.describe(part));
  config.ignore({"partial_rotary_factor"});

  using Scaling = RotaryTable::Scaling;
  table.scaling = read_scaling(group);
  if (table.scaling == Scaling::none) return table;
  if (table.scaling != Scaling::linear) {
    const double otherwise =
        group.positive_if_there("original_max_position_embeddings", static_cast<double>(max_positions));
    table.original_positions = original_key.empty() ? otherwise : positive_or(config, original_key, otherwise);
  }
  // If the factor is null, it follows from the positions.
  if (table.scaling == Scaling::yarn && config.is_null(group.key("factor")))
    table.factor = static_cast<double>(max_positions) / table.original_positions;
  else
    table.factor = group.positive("factor");
  if (table.scaling == Scaling::llama3) {
    table.low_frequency = group.positive("low_freq_factor");
    table.high_frequency = group.positive("high_freq_factor");
  }
  if (table.scaling == Scaling::yarn) {
    table.attention_factor = read_attention_factor(group, table.factor);
    table.beta_fast = read_turns(group, "beta_fast", 32);
    table.beta_slow = read_turns(group, "beta_slow", 1);
    table.truncate = config.bool_or(truncate_key, true);
  }
  return table;
}

}  // namespace

double RotaryTable::yarn_frequency(std::size_t i) const {
  // Rounded to fp32 wherever transformers' tensors are.
  const auto pair_of = [&](double turns) {
    return static_cast<double>(head_dim) * std::log(original_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = pair_of(beta_fast), high = pair_of(beta_slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim) - 1);
  if (low == high) high += 0.001;  // a step instead of a ramp
  const auto wavelength =
      static_cast<float>(std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim)));
  const float plain = 1.0f / wavelength, stretched = 1.0f / (static_cast<float>(factor) * wavelength);
  const float ramp =
      std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
  const float kept = 1 - ramp;
  return stretched * (1 - kept) + plain * kept;
}

double RotaryTable::frequency(std::size_t i) const {
  if (scaling == Scaling::yarn) return yarn_frequency(i);
  const double plain = 1.0 / std::pow(theta, static_cast<double>(2 * i) / static_cast<double>(head_dim));
  if (scaling != Scaling::llama3) return plain / factor;
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
  const auto scale = static_cast<float>(attention_factor);
  for (std::size_t i = 0; i < half; ++i) {
    const auto step = static_cast<float>(frequency(i));
    for (std::size_t p = 0; p < positions; ++p) {
      const float angle = static_cast<float>(p) * step;
      cos[p * half + i] = std::cos(angle) * scale;
      sin[p * half + i] = std::sin(angle) * scale;
    }
  }
}

RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) config.require_object(key, kAnObject);
  config.ignore({"rope_parameters", "rope_scaling"});
  for (const char* key : {"rope_parameters.full_attention", "rope_parameters.sliding_attention"})
    if (!config.keys_inside(key).empty())
      fail(Exit::usage,
           "{} is a group for one kind of attention, which only modernbert has: give its keys in rope_parameters",
           config.describe(key));
  const double theta = positive_or(config, "rope_theta", RotaryTable{}.theta);
  const auto read = [&](const std::string& name) {
    return read_group({config, name + "."}, head_dim, max_positions, theta, "original_max_position_embeddings",
                      name + ".truncate");
  };
  const bool older = !config.keys_inside("rope_scaling").empty();
  const RotaryTable table = read(older ? "rope_scaling" : "rope_parameters");
  if (older && !config.keys_inside("rope_parameters").empty() && table != read("rope_parameters"))
    fail(Exit::usage,
         "{} contradicts rope_parameters; transformers would read only rope_scaling: "
         "give all of these keys in one of the two, and null for the other",
         config.describe("rope_scaling." + config.keys_inside("rope_scaling").front()));
  return table;
}

RotaryTable read_rotary_table(const Config& config, std::size_t head_dim, std::size_t max_positions,
                              const std::string& kind, std::string_view older_theta, double default_theta) {
  const std::string own = "rope_parameters." + kind;
  for (const std::string& key : {std::string("rope_parameters"), std::string("rope_scaling"), own})
    config.require_object(key, kAnObject);
  config.ignore({"rope_parameters", "rope_scaling", own});
  // transformers does not read this key in a kind's own group, or in rope_scaling.
  config.ignore({own + ".truncate", "rope_scaling.truncate"});
  if (config.has("rope_scaling.type") && !config.has("rope_scaling.rope_type"))
    fail(Exit::usage, "{} is not read by transformers for models with angles of two kinds: call it rope_type",
         config.describe("rope_scaling.type"));
  // Each key of rope_scaling replaces the same key of either kind.
  return read_group({config, "rope_scaling.", own + "."}, head_dim, max_positions,
                    positive_or(config, older_theta, default_theta), {}, "rope_parameters.truncate");
}

}  // namespace strata::models

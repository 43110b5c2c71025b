#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"

// Small models of every family that are made quickly, and descriptions of them without their operations.
namespace strata::models::testing {

inline constexpr std::size_t kSeq = 16;

using Overrides = std::vector<std::pair<std::string, std::string>>;  // key, JSON

inline std::string tiny(const std::string& family) {
  if (family == "gpt2")
    return R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":2,"n_positions":24,"vocab_size":50})";
  if (family == "distilbert")
    return R"({"model_type":"distilbert","dim":32,"n_heads":4,"hidden_dim":48,"n_layers":2,
      "max_position_embeddings":24,"vocab_size":50})";
  if (family == "bert" || family == "roberta" || family == "xlm-roberta" || family == "camembert" ||
      family == "modernbert")
    return fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":4,"intermediate_size":48,
      "num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50}})",
                       family);
  return fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
      "head_dim":8,"intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50}})",
                     family);
}
// The same, with an additional line of the file.
inline std::string with(const std::string& family, const std::string& lines) {
  std::string json = tiny(family);
  return json.replace(json.rfind('}'), 1, "," + lines + "}");
}
inline constexpr const char* kFamilyNames[] = {"bert",  "camembert", "distilbert", "gpt2",
                                               "llama", "mistral",   "modernbert", "qwen2",
                                               "qwen3", "roberta",   "xlm-roberta"};
inline std::unique_ptr<Model> make(const std::string& json, const Overrides& overrides = {}, std::size_t seq = kSeq) {
  Config config = Config::parse(json, "config.json");
  for (const auto& [key, value] : overrides) config.override_key(key, value);
  return make_model(config, {1, seq, device::DType::fp32, 1});
}

// Every parameter: its name, its shape, its offset, and whether weight decay applies.
inline std::vector<std::string> describe(const Unit& unit) {
  std::vector<std::string> out;
  for (const Parameter& p : unit.parameters()) {
    std::string shape;
    for (const std::int64_t n : p.shape) shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
    out.push_back(fmt::format(
        "{} {} {} {}", p.name, shape,
        p.init.deviation > 0 ? fmt::format("normal({:.5g})", p.init.deviation) : fmt::format("{}", p.init.constant),
        p.decay ? "decay" : "-"));
  }
  return out;
}
inline std::vector<float> constants(const Model& model) {
  std::vector<float> out(model.constants_bytes / sizeof(float));
  model.fill_constants(reinterpret_cast<std::byte*>(out.data()));
  return out;
}
inline std::string shared_by(const Unit& unit) {
  if (!unit.shared()) return "none";
  const SharedParameter& s = *unit.shared();
  return fmt::format("{}: {} {} [{}, {})", s.name, s.unit, s.parameter, s.elements.begin, s.elements.end);
}
inline void expect_same(const Model& a, const Model& b) {
  ASSERT_EQ(a.units.size(), b.units.size());
  for (std::size_t u = 0; u < a.units.size(); ++u) EXPECT_EQ(describe(*a.units[u]), describe(*b.units[u]));
  EXPECT_EQ(constants(a), constants(b));
  EXPECT_EQ(shared_by(a.loss_unit()), shared_by(b.loss_unit()));
  EXPECT_EQ(a.max_positions, b.max_positions);
}

}  // namespace strata::models::testing

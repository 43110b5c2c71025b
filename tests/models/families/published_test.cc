// Compares configurations with the keys of published files with transformers. tests/golden/make_published.py has the
// weights, documents and labels.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "models/classes.h"
#include "models/families/families.h"
#include "models/files/config.h"
#include "tests/models/packed_learning.h"
#include "tests/source_dir.h"

namespace strata::models {
namespace {

using device::kIgnoredLabel;
using testing::Buffer;
using testing::Columns;

std::uint32_t word_of(std::size_t document, std::size_t i) {
  return static_cast<std::uint32_t>(8 + (7 * document + 11 * i + i * i) % 50);
}

std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void fill(const Unit& unit, Buffer& flat) {
  for (const Parameter& p : unit.parameters()) {
    std::uint64_t key = 0xcbf29ce484222325;
    for (const char c : p.name) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    const bool gain = p.shape.size() == 1 && p.name.ends_with(".weight");
    for (std::size_t i = 0; i < p.size(); ++i) {
      const float around = static_cast<float>(scrambled(key + i) >> 40) * 0x1p-24f - 0.5f;
      flat.set(p.offset + i, around * 0.4f + (gain ? 1.0f : 0.0f));
    }
  }
}

// The labels of a document in its rows. `reads`: the model's input.
std::vector<std::int32_t> labels_of(std::size_t document, std::vector<std::uint32_t>& reads, Objective objective,
                                    const Classes& classes, bool last) {
  const auto count = static_cast<std::int32_t>(classes.names.size()), number = static_cast<std::int32_t>(document);
  std::vector<std::int32_t> out(reads.size(), kIgnoredLabel);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (objective == Objective::causal_lm && i + 1 < reads.size()) out[i] = static_cast<std::int32_t>(reads[i + 1]);
    if (objective == Objective::masked_lm && i % 3 == 1) out[i] = static_cast<std::int32_t>(std::exchange(reads[i], 3));
    if (objective == Objective::token_classification && i % 4 != 0)
      out[i] = (number + static_cast<std::int32_t>(i)) % count;
  }
  if (objective == Objective::sequence_classification)
    out[last ? reads.size() - 1 : 0] =
        classes.target == device::ClassTarget::many ? number & ((1 << count) - 1) : number % count;
  return out;
}

TEST(PublishedTest, LossesAndSizesMatchTransformers) {
  simdjson::dom::parser parser;
  const simdjson::dom::element golden = parser.load((tests::source_dir() / "tests/golden/published.json").string());
  std::vector<std::string> configs;
  for (const auto config : golden["configs"]) configs.push_back(simdjson::minify(config));
  std::size_t cases = 0;
  for (const auto one : golden["cases"]) {
    const std::string& json = configs.at(std::uint64_t(one["config"]));
    const std::string_view name = one["objective"];
    SCOPED_TRACE(std::string(name) + " " + json);
    ++cases;
    Objective objective = Objective::causal_lm;
    while (name_of(objective) != name) objective = static_cast<Objective>(static_cast<int>(objective) + 1);
    // Dropout is off, even if the class has some by default.
    static const std::regex kDropout(R"re(("\w*p?drop\w*":)[0-9.]+)re");
    Config config = Config::parse(std::regex_replace(json, kDropout, "$010"), "config.json");
    config.override_key("architectures", "[\"" + architecture_of(config, objective) + "\"]");
    const bool of_class =
        objective == Objective::sequence_classification || objective == Objective::token_classification;
    if (of_class && !config.has("classifier_dropout") && !config.has("seq_classif_dropout"))
      config.override_key("classifier_dropout", "0.0");
    const Classes classes = read_classes(config, objective);
    Columns columns;
    std::size_t document = 0;
    for (const std::uint64_t length : golden["lengths"]) {
      std::vector<std::uint32_t> reads;
      for (std::size_t i = 0; i < length; ++i) reads.push_back(word_of(document, i));
      const auto labels = labels_of(document++, reads, objective, classes, predicts_next(config));
      const auto first = static_cast<std::uint32_t>(columns.tokens.size());
      columns.tokens.insert(columns.tokens.end(), reads.begin(), reads.end());
      columns.labels.insert(columns.labels.end(), labels.begin(), labels.end());
      for (std::uint32_t i = 0; i < length; ++i) columns.positions.push_back(i);
      columns.documents.resize(columns.tokens.size(), {first, first + static_cast<std::uint32_t>(length)});
    }
    columns.add_leftover(7);
    const RunShape shape{.batch = 1, .seq = 8, .dtype = device::DType::fp32, .threads = 1, .training = false};
    const auto model = make_model(Config::parse(config.to_json(), "config.json"), shape);
    EXPECT_EQ(model->parameters(), std::uint64_t(one["parameters"]));
    const double loss = one["loss"];
    EXPECT_NEAR(testing::learn(config, columns, 1.0f, fill).loss, loss, 2e-6 * loss);
  }
  EXPECT_EQ(cases, 3 * configs.size());
  EXPECT_GE(configs.size(), 10u);
}

}  // namespace
}  // namespace strata::models

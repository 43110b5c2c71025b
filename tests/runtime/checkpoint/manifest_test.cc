#include "runtime/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/failure.h"

namespace strata::runtime {
namespace {

Manifest some_manifest() {
  Manifest m;
  m.serial = 7;
  m.progress = {3, 2, 12, 768, {1024.0f, 5}};
  m.micro_batches_per_step = 4;
  m.ranks = 2;
  m.family = "gpt2";
  m.config = "{\"n_layer\":2}";
  m.tensors = {{"wte.weight", {130, 48}}, {"ln_f.bias", {48}}};
  m.recipe = {{"training.precision", "bf16"}};
  m.files = {{"rank-0.safetensors", 8192, 4096, 0x0123456789abcdefu}};
  return m;
}

TEST(Manifest, SurvivesARoundTrip) {
  Manifest m = some_manifest();
  m.validation_hash = "0123456789abcdef";
  for (const char* algorithms : {"", "strata algorithms 1\nNVIDIA H200, cuBLASLt 13.1.0\n8x8x8 NT: 00ff\n"}) {
    m.algorithms = algorithms;
    const std::string json = to_json(m);
    const Manifest again = parse_manifest(json, "manifest.json");
    EXPECT_EQ(again.algorithms, algorithms);
    EXPECT_EQ(again.validation_hash, m.validation_hash);
    EXPECT_EQ(again.progress, m.progress);
    EXPECT_EQ(again.recipe, m.recipe);
    EXPECT_EQ(to_json(again), json);
  }
}

// So that people can compare manifests line by line.
TEST(Manifest, HasALinePerSubject) {
  Manifest m = some_manifest();
  m.progress.best = {2, 1.5, 1, 3};
  m.base_hash = "0";
  m.data_hash = "12";
  const std::string json = to_json(m);
  ASSERT_GT(json.size(), 19u);
  EXPECT_EQ(json.substr(0, json.size() - 19),
            "{\"format\":\"strata checkpoint\",\"version\":2,\n"
            "\"serial\":7,\"step\":3,\"adam_t\":2,\"tokens\":768,\"next_micro_batch\":12,"
            "\"micro_batches_per_step\":4,\"ranks\":2,\n"
            "\"loss_scale\":{\"scale\":1024,\"growth_tracker\":5},\n"
            "\"model\":{\"family\":\"gpt2\",\"config\":{\"n_layer\":2},\n"
            "\"tensors\":[\n{\"name\":\"wte.weight\",\"shape\":[130,48]},\n"
            "{\"name\":\"ln_f.bias\",\"shape\":[48]}]},\n"
            "\"best\":{\"step\":2,\"value\":1.5,\"since\":1,\"newest\":3},\n"
            "\"recipe\":{\n\"training.precision\":\"bf16\"},\n"
            "\"base\":{\"path\":\"\",\"hash\":\"0\"},\n"
            "\"data_xxh3\":\"12\",\n"
            "\"files\":[\n{\"name\":\"rank-0.safetensors\",\"bytes\":8192,\"header_bytes\":4096,"
            "\"header_xxh3\":\"0123456789abcdef\"}],\n"
            "\"checksum\":\"");
  EXPECT_TRUE(json.ends_with("\"}\n"));
}

// Older programs can read everything that they support, and report the rest as newer.
TEST(Manifest, HasTheLowestSufficientVersion) {
  Manifest m = some_manifest();
  const auto version = [&](const char* expected) {
    EXPECT_THAT(to_json(m), testing::HasSubstr(std::string("\"version\":") + expected + ","));
    EXPECT_EQ(parse_manifest(to_json(m), "manifest.json").boxes, m.boxes);
  };
  version("1");
  m.base_hash = "0";
  version("2");
  m.boxes = true;
  version("3");
  m.base_hash.clear();
  version("3");
}

TEST(Manifest, KeepsEveryBestValue) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -0.5, 1e-310, 0.1, 1e19, 1.7976931348623157e308, kInfinity, -kInfinity}) {
    Manifest m = some_manifest();
    m.progress.best = Best{2, value, 1, 3};
    EXPECT_EQ(parse_manifest(to_json(m), "manifest.json").progress.best, m.progress.best) << value;
  }
  Manifest m = some_manifest();
  m.progress.best = Best{2, std::nan(""), 1, 3};
  EXPECT_TRUE(std::isnan(parse_manifest(to_json(m), "manifest.json").progress.best->value));
}

// A config.json may hold numbers that only Python's json reads.
TEST(Manifest, KeepsPythonsNumbersInAConfig) {
  Manifest m = some_manifest();
  m.config = R"({"a":NaN,"b":[1e400,-Infinity],"c":123456789012345678901234567890,"d":"NaN","x.y":{"z":Infinity}})";
  EXPECT_EQ(parse_manifest(to_json(m), "manifest.json").config, m.config);
}

// Older versions wrote this text, with its checksum.
TEST(Manifest, ReadsAnOlderBestValueThatIsNotJson) {
  for (const auto& [before, value] : {std::pair{"inf", std::numeric_limits<double>::infinity()},
                                      {"-inf", -std::numeric_limits<double>::infinity()}}) {
    Manifest m = some_manifest();
    m.recipe["note"] = "\"best\":{\"step\":1,\"value\":inf,";
    m.progress.best = Best{2, 3.0, 1, 3};
    std::string json = to_json(m);
    json.replace(json.find("\"value\":3,"), 10, std::string("\"value\":") + before + ",");
    const Manifest again = parse_manifest(with_checksum(json), "manifest.json");
    EXPECT_EQ(again.progress.best->value, value);
    EXPECT_EQ(again.recipe, m.recipe);
  }
}

TEST(Manifest, DetectsEveryFlippedBit) {
  const std::string json = to_json(some_manifest());
  for (std::size_t i = 0; i < json.size() * 8; ++i) {
    std::string damaged = json;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    EXPECT_FAILURE((void)parse_manifest(damaged, "manifest.json"), Exit::corrupt, testing::HasSubstr("manifest.json"));
  }
}

// The checksum is valid in all of these.
TEST(Manifest, RefusesImpossibleNumbers) {
  const auto refused = [](auto&& change, const char* what) {
    Manifest m = some_manifest();
    change(m);
    EXPECT_FAILURE((void)parse_manifest(to_json(m), "manifest.json"), Exit::corrupt, testing::HasSubstr(what));
  };
  refused([](Manifest& m) { m.progress.loss_scale.scale = 0; }, "scale");
  refused([](Manifest& m) { m.progress.loss_scale.scale = -1; }, "scale");
  refused([](Manifest& m) { m.progress.updates = 4; }, "adam_t");
}

}  // namespace
}  // namespace strata::runtime

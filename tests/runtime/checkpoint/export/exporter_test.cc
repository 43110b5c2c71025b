#include "runtime/checkpoint/export/exporter.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "models/files/safetensors.h"
#include "models/objective.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type":"qwen3","hidden_size":32,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":8,"intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":24,
    "vocab_size":50,"rope_parameters":{"rope_theta":5000.0,"rope_type":"default"},"dtype":"bfloat16",
    "eos_token_id":[2,3],"architectures":["Qwen3ForCausalLM"]})";

// A number for each place, none of which is exact in bf16.
class Counting final : public WeightSource {
 public:
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(unit, parameter, begin + i);
  }
  static float value(std::size_t unit, std::size_t parameter, std::size_t i) {
    return static_cast<float>(unit) + static_cast<float>(parameter) * 0.1f + static_cast<float>(i) * 0.001f;
  }
};

class ExporterTest : public testing::Test {
 protected:
  ExporterTest() {
    model_ = models::make_model(models::Config::parse(kConfig, "config"), {1, 1, device::DType::fp32, 1, false});
  }
  fs::path out(const char* name) const { return folder_.path() / name; }
  void export_to(const fs::path& to, const ExportOptions& options) {
    export_model(models::Config::parse(kConfig, "config"), Counting(), source_, to, options);
  }
  // Expects every tensor of the model, with the values of Counting rounded to `type`.
  void expect_whole(const fs::path& to, device::DType type) {
    const auto file = models::Safetensors::open(to);
    std::size_t tensors = 0;
    for (std::size_t unit = 0; unit < model_->units.size(); ++unit)
      for (std::size_t p = 0; p < model_->units[unit]->parameters().size(); ++p, ++tensors) {
        const models::Parameter& parameter = model_->units[unit]->parameters()[p];
        const models::StoredTensor& stored =
            file.require(parameter.name, std::vector<std::uint64_t>(parameter.shape.begin(), parameter.shape.end()));
        ASSERT_EQ(stored.type, type);
        std::vector<float> values(parameter.size());
        models::read_elements(stored, 0, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float value = Counting::value(unit, p, i);
          ASSERT_EQ(values[i], type == device::DType::fp32 ? value : to_float(device::from_float<device::bf16>(value)));
        }
      }
    EXPECT_EQ(file.tensors().size(), tensors);
    EXPECT_EQ(file.metadata().at("format"), "pt") << "transformers refuses a file without it";
  }

  tests::ScratchFolder folder_;
  std::unique_ptr<models::Model> model_;
  std::optional<fs::path> source_;
};

TEST_F(ExporterTest, WritesTheTensorsAndTheConfiguration) {
  export_to(out("model"), {});
  expect_whole(out("model"), device::DType::fp32);
  const models::Config config = models::Config::read(out("model"));
  EXPECT_EQ(config.require_text("dtype"), "float32");
  EXPECT_EQ(config.number_or("rope_parameters.rope_theta", 0), 5000);
  EXPECT_EQ(config.texts("architectures"), std::vector<std::string>{"Qwen3ForCausalLM"});
  EXPECT_EQ(config.integers("eos_token_id"), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(ExporterTest, RoundsToBf16) {
  export_to(out("model"), {.dtype = device::DType::bf16});
  expect_whole(out("model"), device::DType::bf16);
  EXPECT_EQ(models::Config::read(out("model")).require_text("dtype"), "bfloat16");
}

TEST_F(ExporterTest, CutsIntoShardsWithAnIndex) {
  export_to(out("model"), {.shard_bytes = 10000});
  expect_whole(out("model"), device::DType::fp32);
  EXPECT_FALSE(fs::exists(out("model") / "model.safetensors"));
  const std::string index = folder_.read("model/model.safetensors.index.json");
  EXPECT_THAT(index, testing::StartsWith("{\n  \"metadata\": {\n    \"total_size\": "));
  EXPECT_THAT(index, HasSubstr("\n  },\n  \"weight_map\": {\n    \""));
  EXPECT_THAT(index, testing::EndsWith(".safetensors\"\n  }\n}\n"));
  std::size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(out("model"))) {
    if (entry.path().extension() != ".safetensors") continue;
    ++shards;
    EXPECT_LE(fs::file_size(entry.path()), 10000u + 2000u) << "with its header";
  }
  EXPECT_GT(shards, 3u);
}

TEST_F(ExporterTest, CopiesTheTokenizersFiles) {
  folder_.write("hf/config.json", kConfig);
  folder_.write("hf/tokenizer.json", "{}");
  std::filesystem::create_directories(folder_.path() / "hf/additional_chat_templates");
  folder_.write("hf/additional_chat_templates/rag.jinja", "r");
  folder_.write("hf/model.safetensors", "not copied");
  source_ = out("hf");
  export_to(out("model"), {});
  EXPECT_EQ(folder_.read("model/tokenizer.json"), "{}");
  EXPECT_EQ(folder_.read("model/additional_chat_templates/rag.jinja"), "r");
  expect_whole(out("model"), device::DType::fp32);
}

TEST_F(ExporterTest, ChangesNoExistingFile) {
  folder_.write("model/notes.txt", "mine");
  EXPECT_FAILURE(export_to(out("model"), {}), Exit::usage, HasSubstr("not empty"));
  std::ofstream(out("file")).close();
  EXPECT_FAILURE(export_to(out("file"), {}), Exit::usage, HasSubstr("not a folder"));
  EXPECT_EQ(folder_.read("model/notes.txt"), "mine");
  fs::create_directory(out("empty"));
  export_to(out("empty"), {});
  expect_whole(out("empty"), device::DType::fp32);
}

TEST_F(ExporterTest, AFailureLeavesNothingBehind) {
  class Failing final : public WeightSource {
    void read(std::size_t unit, std::size_t, std::size_t, std::span<float> out) const override {
      std::fill(out.begin(), out.end(), 0.0f);
      if (unit == 2) fail(Exit::corrupt, "no such block");
    }
  };
  EXPECT_FAILURE(export_model(models::Config::parse(kConfig, "config"), Failing(), {}, out("model"), {}), Exit::corrupt,
                 HasSubstr("no such block"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ExporterTest, AddsAMissingArchitecture) {
  const char* gpt2 = R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":1,"n_positions":24,"vocab_size":50})";
  export_model(models::Config::parse(gpt2, "config"), Counting(), {}, out("model"), {});
  EXPECT_EQ(models::Config::read(out("model")).texts("architectures"), std::vector<std::string>{"GPT2LMHeadModel"});
  // The same is true for a model that had no head when training began: the export has the head.
  const std::string body = std::string(gpt2).insert(1, R"("architectures":["GPT2Model"],)");
  export_model(models::Config::parse(body, "config"), Counting(), {}, out("body"), {});
  EXPECT_EQ(models::Config::read(out("body")).texts("architectures"), std::vector<std::string>{"GPT2LMHeadModel"});
}

// An encoder from transformers is exported again. Every tensor keeps its name, and there are no others.
TEST(ExportedEncoder, HasTheTensorsThatTransformersWrote) {
  for (const char* name : {"bert", "roberta", "distilbert", "modernbert", "classes/bert_single",
                           "classes/modernbert_mean", "classes/modernbert_tokens"}) {
    const fs::path folder = tests::source_dir() / "tests/golden" / name / "model";
    const models::Config config = models::Config::read(folder);
    const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
    const tests::ScratchFolder scratch;
    const fs::path out = scratch.path() / "out";
    export_model(config, *stored_weights(*model, folder), std::nullopt, out, {});
    const auto named = config.has("architectures")
                           ? config.texts("architectures")
                           : std::vector{models::architecture_of(config, models::Objective::masked_lm)};
    EXPECT_EQ(models::Config::read(out).texts("architectures"), named) << name;
    const auto before = models::Safetensors::open(folder), after = models::Safetensors::open(out);
    EXPECT_EQ(after.tensors().size(), before.tensors().size()) << name;
    for (const models::StoredTensor& tensor : before.tensors()) {
      const models::StoredTensor* found = after.find(tensor.name);
      ASSERT_NE(found, nullptr) << name << ": " << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
      EXPECT_TRUE(std::equal(found->bytes.begin(), found->bytes.end(), tensor.bytes.begin(), tensor.bytes.end()))
          << name << ": " << tensor.name;
    }
  }
}

// transformers 5 reads two biases of an untied decoder and computes with the decoder's own.
TEST(ExportedEncoder, AnUntiedDecoderHasBothBiases) {
  const struct {
    const char* family;
    const char* bias;
    const char* decoder;
  } cases[] = {{"bert", "cls.predictions.bias", "cls.predictions.decoder"},
               {"roberta", "lm_head.bias", "lm_head.decoder"},
               {"distilbert", nullptr, "vocab_projector"},
               {"modernbert", nullptr, "decoder"}};
  for (const auto& [family, bias, decoder] : cases)
    for (const bool classifies : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", family, classifies));
      models::Config config = models::Config::read(tests::source_dir() / "tests/golden" / family / "model");
      config.override_key("tie_word_embeddings", "false");
      if (classifies) {
        config.override_key(
            "architectures",
            fmt::format(R"(["{}"])", models::architecture_of(config, models::Objective::sequence_classification)));
        config.override_key("num_labels", "2");
      }
      const tests::ScratchFolder scratch;
      const fs::path out = scratch.path() / "out";
      export_model(config, Counting(), std::nullopt, out, {});
      const auto file = models::Safetensors::open(out);
      const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
      std::size_t parameters = 0;
      for (const auto& unit : model->units) parameters += unit->parameters().size();
      const bool copies = bias && !classifies;
      EXPECT_EQ(file.tensors().size(), parameters + (copies ? 1 : 0));
      if (!copies) continue;
      const models::StoredTensor *copy = file.find(bias), *own = file.find(fmt::format("{}.bias", decoder));
      ASSERT_TRUE(copy && own);
      EXPECT_TRUE(models::same_values(*copy, *own));
      EXPECT_NE(file.find(fmt::format("{}.weight", decoder)), nullptr);
    }
}

}  // namespace
}  // namespace strata::runtime

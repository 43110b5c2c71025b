#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "models/families/families.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

fs::path golden(const char* name) {
  return tests::source_dir() / "tests/golden" / name / "model";
}

class QuantisedExportTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, QuantisedExportTest, testing::Values("nf4/llama", "nf4/gpt2", "nf4/head"));

TEST_P(QuantisedExportTest, WritesBitsandbytesOriginalTensors) {
  const tests::ScratchFolder scratch;
  const fs::path out = scratch.path() / "out", folder = golden(GetParam());
  export_model(ModelFolder(folder), out, {.quantised = true});
  const auto before = models::Safetensors::open(folder), after = models::Safetensors::open(out);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const models::StoredTensor& tensor : before.tensors()) {
    const models::StoredTensor* const written = after.find(tensor.name);
    ASSERT_NE(written, nullptr) << tensor.name;
    EXPECT_EQ(written->dtype, tensor.dtype) << tensor.name;
    if (tensor.name.ends_with("bitsandbytes__nf4")) continue;  // JSON, read below
    EXPECT_EQ(written->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(written->bytes, tensor.bytes)) << tensor.name;
  }
  const models::Config config = ModelFolder(out).config();
  EXPECT_EQ(config.json("quantization_config.quant_method"), R"("bitsandbytes")");
  EXPECT_EQ(config.json("quantization_config.bnb_4bit_use_double_quant"), "true");
  // The export reads like the original.
  const fs::path again = scratch.path() / "again", first = scratch.path() / "first";
  export_model(ModelFolder(out), again, {});
  export_model(ModelFolder(folder), first, {});
  const auto a = models::Safetensors::open(again), b = models::Safetensors::open(first);
  for (const models::StoredTensor& tensor : b.tensors())
    EXPECT_TRUE(models::same_values(tensor, *a.find(tensor.name))) << tensor.name;
  EXPECT_EQ(ModelFolder(first).config().json("quantization_config"), "null");
}

// transformers quantises the output layer if llm_int8_skip_modules is a list without it. Its values are bitsandbytes'.
TEST(QuantisedHead, HasTheValuesOfBitsandbytes) {
  const tests::ScratchFolder scratch;
  const fs::path out = scratch.path() / "out", folder = golden("nf4/head");
  export_model(ModelFolder(folder), out, {});
  const auto wanted = models::Safetensors::open(folder / "../head.safetensors");
  const auto written = models::Safetensors::open(out);
  EXPECT_TRUE(models::same_values(*wanted.find("lm_head.weight"), *written.find("lm_head.weight")));
}

// A training reads it, whatever trains it: an adapter, on any number of ranks, or itself.
TEST(QuantisedHead, IsTrained) {
  const SavedRun run;
  const auto loss = [&](int ranks, std::vector<std::string> more) {
    more.insert(more.end(),
                {"model.path=" + golden("nf4/head").string(), "checkpoint.resume=none", "training.precision=fp32"});
    std::vector<std::string> sets = run.sets(ranks, more);
    std::erase_if(sets, [](const std::string& set) {
      return set.starts_with("model.preset") || set.starts_with("model.config");
    });
    return run.run(ranks, sets, 2).losses;
  };
  const std::vector<std::string> whole = loss(1, {});
  EXPECT_NE(whole[0], whole[1]);
  for (const char* targets : {R"(["q_proj"])", R"(["q_proj", "lm_head"])"}) {
    const std::string targeted = std::string("adapter.target_modules=") + targets;
    const std::vector<std::string> alone = loss(1, {"adapter.kind=lora", targeted});
    EXPECT_EQ(alone[0], whole[0]) << "B is zero";
    EXPECT_EQ(loss(2, {"adapter.kind=lora", targeted, "zero.stage=3"}), alone);
    EXPECT_EQ(loss(2, {"adapter.kind=lora", targeted}), alone);
  }
}

// Matrices of blocks are in 4 bits, and the head's too if requested.
class InFourBits final : public WeightSource {
 public:
  InFourBits(const models::Model& model, bool head) : model_(model), head_(head) {}
  void read(std::size_t, std::size_t, std::size_t, std::span<float>) const override {}
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    const models::Unit& of = *model_.units[unit];
    const bool chosen = of.as_loss() ? head_ : of.ports().input;
    return chosen && of.parameters()[parameter].shape.size() == 2 && format == device::StorageFormat::nf4;
  }

 private:
  const models::Model& model_;
  bool head_;
};

// Without a list, transformers treats the head as not quantised.
TEST(QuantisedExportOfAHead, ListsUnquantisedModules) {
  const models::Config config = ModelFolder(golden("llama")).config();
  const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
  for (const bool head : {false, true}) {
    const InFourBits weights(*model, head);
    models::Config written = config;
    QuantisedExport(*model, weights, device::DType::fp32).describe(written);
    EXPECT_EQ(written.json("quantization_config.llm_int8_skip_modules"), head ? R"(["model.embed_tokens"])" : "null");
  }
}

// The dtype is a state's, not the model's.
TEST(QuantisedStates, KeepTheDtypeOfTheirFiles) {
  const tests::ScratchFolder scratch;
  const fs::path folder = scratch.path() / "read";
  fs::copy(golden("nf4/llama"), folder, fs::copy_options::recursive);
  std::string file = scratch.read("read/model.safetensors");
  const std::string old = R"("dtype": "float32", "shape")", now = R"("dtype":"bfloat16", "shape")";
  ASSERT_EQ(old.size(), now.size());
  std::size_t states = 0;
  for (std::size_t at = 0; (at = file.find(old, at)) != std::string::npos; ++states) file.replace(at, old.size(), now);
  ASSERT_GT(states, 0u);
  scratch.write("read/model.safetensors", file);
  const auto states_with = [&](const fs::path& from, const char* to, const std::string& dtype, ExportOptions options) {
    options.quantised = true;
    export_model(ModelFolder(from), scratch.path() / to, options);
    const auto written = models::Safetensors::open(scratch.path() / to);
    std::size_t count = 0;
    for (const models::StoredTensor& tensor : written.tensors()) {
      if (!tensor.name.ends_with("bitsandbytes__nf4")) continue;
      const std::string_view json(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      count += json.find(R"("dtype": ")" + dtype + '"') != std::string_view::npos;
    }
    return count;
  };
  EXPECT_EQ(states_with(folder, "kept", "bfloat16", {}), states);
  EXPECT_EQ(states_with(folder, "chosen", "float32", {.unpacked_as_read = false}), states);
  EXPECT_EQ(states_with(golden("nf4/llama"), "plain", "float32", {.dtype = device::DType::bf16}), states);
  // An adapter's checkpoint names the folder, and that of a full training has its config.json.
  scratch.write("read/config.json", [&] {
    models::Config config = ModelFolder(folder).config();
    config.override_key("dtype", R"("bfloat16")");
    return config.to_json();
  }());
  for (const char* trained : {"lora", "none"}) {
    const SavedRun run;
    std::vector<std::string> sets =
        run.sets(1, {"model.path=" + folder.string(), std::string("adapter.kind=") + trained});
    std::erase_if(sets, [](const std::string& set) {
      return set.starts_with("model.preset") || set.starts_with("model.config");
    });
    run.run(1, sets, 1, {1});
    EXPECT_EQ(states_with(run.checkpoints(), trained, "bfloat16", {}), states) << trained;
  }
}

// Quantised scales would change the values that bitsandbytes gives plain ones.
TEST(QuantisedFiles, PlainScalesThatTheConfigCallsQuantisedAreRefused) {
  const tests::ScratchFolder scratch;
  const fs::path plain = scratch.path() / "plain";
  const SavedRun run;
  std::vector<std::string> sets = run.sets(1, {"adapter.kind=lora"});
  std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
  for (const char* set : {"model.preset=tiny-llama", "model.frozen_format=nf4", "model.double_quant=false"})
    sets.emplace_back(set);
  run.run(1, sets, 1, {1});
  export_model(ModelFolder(run.checkpoints()), plain, {.quantised = true});
  std::string json = ModelFolder(plain).config().to_json();
  const auto at = json.find("false", json.find("bnb_4bit_use_double_quant"));
  ASSERT_NE(at, std::string::npos) << json;
  json.replace(at, 5, "true");
  scratch.write("plain/config.json", json);
  EXPECT_FAILURE(export_model(ModelFolder(plain), scratch.path() / "out", {}), Exit::usage,
                 testing::HasSubstr("set bnb_4bit_use_double_quant to false"));
}

// The model contains neither the adapter's factors nor the modules that it saved, because others load it next to the
// adapter.
TEST(QuantisedExportOfAnAdapter, WritesItsBaseModel) {
  const struct {
    const char* base;
    const char* adapts;
  } cases[] = {{"nf4/llama", "adapter.target_modules=all-linear"},
               {"nf4/head", "adapter.target_modules=all-linear"},
               {"nf4/head", R"(adapter.target_modules=["q_proj", "lm_head"])"}};
  for (const auto& [base, adapts] : cases) {
    SCOPED_TRACE(base);
    const SavedRun run;
    std::vector<std::string> sets = run.sets(1, {"model.path=" + golden(base).string(), "adapter.kind=lora", adapts,
                                                 "adapter.modules_to_save=norm", "optimizer.learning_rate=0.1"});
    std::erase_if(sets, [](const std::string& set) {
      return set.starts_with("model.preset") || set.starts_with("model.config");
    });
    run.run(1, sets, 2, {2});
    const fs::path out = run.folder().path() / "out";
    export_model(ModelFolder(run.checkpoints()), out, {.quantised = true});
    const auto before = models::Safetensors::open(golden(base)), after = models::Safetensors::open(out);
    EXPECT_EQ(after.tensors().size(), before.tensors().size());
    for (const models::StoredTensor& tensor : before.tensors())
      if (!tensor.name.ends_with("bitsandbytes__nf4")) {
        const models::StoredTensor* const written = after.find(tensor.name);
        ASSERT_NE(written, nullptr) << tensor.name;
        EXPECT_TRUE(std::ranges::equal(written->bytes, tensor.bytes)) << tensor.name;
      }
    EXPECT_EQ(ModelFolder(out).config().json("quantization_config.llm_int8_skip_modules"),
              ModelFolder(golden(base)).config().json("quantization_config.llm_int8_skip_modules"));
  }
}

// transformers stores GPT-2's matrices as Conv1D, [in, out], and bitsandbytes as [out, in].
TEST(ExportOfAQuantisedGpt2, WritesConv1D) {
  const tests::ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  export_model(ModelFolder(golden("nf4/gpt2")), out, {});
  const auto original = models::Safetensors::open(golden("gpt2")), written = models::Safetensors::open(out);
  for (const models::StoredTensor& tensor : original.tensors()) {
    const models::StoredTensor* const one = written.find(tensor.name);
    ASSERT_NE(one, nullptr) << tensor.name;
    ASSERT_EQ(one->shape, tensor.shape) << tensor.name;
    double off = 0, size = 0;
    const auto *a = reinterpret_cast<const float*>(tensor.bytes.data()),
               *b = reinterpret_cast<const float*>(one->bytes.data());
    for (std::size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
      off += std::abs(a[i] - b[i]);
      size += std::abs(a[i]);
    }
    EXPECT_LT(off, 0.15 * size) << tensor.name << ": 4 bits are near, another order is not";
  }
}

TEST(ExportOfNumbers, CannotBeInFourBits) {
  const tests::ScratchFolder scratch;
  try {
    export_model(ModelFolder(golden("llama")), scratch.path() / "out", {.quantised = true});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("model.frozen_format"));
  }
}

}  // namespace
}  // namespace strata::runtime

#include "launcher/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/commands/commands.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::string inspected(const std::filesystem::path& path, Tensors tensors = Tensors::all) {
  std::ostringstream out;
  EXPECT_EQ(inspect(path, tensors, out), 0);
  return out.str();
}

TEST(InspectTest, TokenFiles) {
  const tests::ScratchFolder folder;
  const auto in = folder.write("in.txt", "Hi\nyou");
  tokenize({"byte", folder.path() / "t.bin", {in.string()}});
  EXPECT_THAT(
      inspected(folder.path() / "t.bin"),
      AllOf(HasSubstr("6 tokens of 2 bytes, no header"), HasSubstr("tokenizer byte, vocabulary of 256"),
            HasSubstr("documents: 1, of 6.0 tokens on average and 6 at most"), Not(HasSubstr("mask")),
            HasSubstr("smallest token 10, largest 121"), HasSubstr("72 105 10 121 111 117"), HasSubstr("Hi\\x0ayou")));
  std::filesystem::remove(folder.path() / "t.bin.json");
  EXPECT_THAT(inspected(folder.path() / "t.bin"), HasSubstr("no sidecar"));
}

TEST(InspectTest, MasksOfTokenFiles) {
  const tests::TokenFolder folder;
  const auto path = folder.write("t.bin", {3, 5}, "01100011");
  EXPECT_THAT(inspected(path), AllOf(HasSubstr("documents: 2, of 4.0 tokens on average and 5 at most"),
                                     HasSubstr("mask: 4 tokens count as labels (50.0%)")));
  folder.put("t.bin.mask", "a");
  EXPECT_FAILURE(inspected(path), Exit::corrupt, HasSubstr("t.bin.mask has the hash"));
}

TEST(InspectTest, SafetensorsWithStatistics) {
  const tests::ScratchFolder folder;
  const std::string header = R"({"a.w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"I64","shape":[],"data_offsets":[16,24]}})";
  const float values[] = {1, 3, std::numeric_limits<float>::quiet_NaN(), 5};
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  bytes += header + std::string(reinterpret_cast<const char*>(values), 16) + std::string(8, '\0');
  folder.write("model.safetensors", bytes);
  folder.write("unnamed", bytes);
  // Mean 3 and deviation sqrt(8/3) of the three finite values.
  const auto expected =
      AllOf(ContainsRegex("a\\.w +F32 +\\[2, 2\\] +3 +1\\.633 +1\n"), ContainsRegex("b +I64 +\\[\\] +- +- +-\n"),
            HasSubstr("2 tensors, 5 elements, 24 bytes"), HasSubstr("1 non-finite element\n"));
  EXPECT_THAT(inspected(folder.path() / "model.safetensors"), expected);
  EXPECT_THAT(inspected(folder.path()), expected);
  EXPECT_THAT(inspected(folder.path() / "unnamed"), expected);
  EXPECT_THAT(inspected(folder.path(), Tensors::wrong),
              AllOf(ContainsRegex("a\\.w +F32 .* 1\n"), Not(HasSubstr("I64  ")), HasSubstr("2 tensors, 5 elements"),
                    HasSubstr("dtypes: 1 of F32 (4 elements), 1 of I64 (1 element)\n"),
                    HasSubstr("1 non-finite element (--tensors")));
  EXPECT_THAT(inspected(folder.path()), testing::StartsWith("2 tensors, 5 elements")) << "a summary first";
}

// Describes peft's folders and models in 4 bits, and what would prevent reading them.
TEST(InspectTest, AdaptersAndQuantisedModels) {
  namespace fs = std::filesystem;
  const fs::path golden = tests::source_dir() / "tests/golden";
  EXPECT_THAT(inspected(golden / "adapters/llama/adapter"),
              AllOf(HasSubstr("adapter (LoRA) of llama: rank 4, alpha 8, dropout 0\n"), HasSubstr("q_proj"),
                    HasSubstr("lora_A.weight"), Not(HasSubstr("broken")), Not(HasSubstr("zeros"))));
  EXPECT_THAT(inspected(golden / "adapters/bert_pairs/adapter"), HasSubstr("fully trained: classifier"));
  EXPECT_THAT(inspected(golden / "nf4/llama/model"),
              AllOf(HasSubstr("quantised: 14 matrices in bitsandbytes' NF4\n"), Not(HasSubstr("broken"))));

  const tests::ScratchFolder folder;
  fs::copy(golden / "adapters/llama/adapter", folder.path() / "adapted");
  folder.write("adapted/config.json", R"({"model_type": "llama"})");  // left there by trainers
  EXPECT_THAT(inspected(folder.path() / "adapted"), HasSubstr("adapter (LoRA) of llama: rank 4"));
  const auto changed = [&](const char* name, const char* file, const std::string& old, const std::string& other) {
    const fs::path copy = folder.path() / "copy";
    fs::remove_all(copy);
    fs::copy(golden / name, copy);
    std::string text = folder.read(std::string("copy/") + file);
    const std::size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    if (at != std::string::npos) text.replace(at, old.size(), other);
    std::ofstream(copy / file, std::ios::binary) << text;
    return inspected(copy);
  };
  const char *adapter = "adapters/llama/adapter", *config = "adapter_config.json",
             *weights = "adapter_model.safetensors";
  EXPECT_THAT(changed(adapter, config, "\"r\": 4", "\"r\": 5"), HasSubstr("gives it the rank 5\n"));
  EXPECT_THAT(changed(adapter, config, "\"use_qalora\": false", "\"use_qalora\": true"), HasSubstr("not supported: "));
  EXPECT_THAT(changed(adapter, config, "\"use_dora\": false", "\"use_bdlora\": true"), HasSubstr("use_bdlora twice"));
  EXPECT_THAT(changed(adapter, config, "\"use_qalora\"", "\"use_tomorrow\": 1, \"use_qalora\""),
              HasSubstr("use_tomorrow = 1 is not known"));
  EXPECT_THAT(changed(adapter, config, "{", "["), HasSubstr("broken: "));
  EXPECT_THAT(changed(adapter, weights, "lora_A", "lora_C"), HasSubstr("lora_B.weight exists without .lora_A.weight"));
  EXPECT_THAT(changed(adapter, weights, "\"F32\"", "\"I32\""), HasSubstr("is stored as I32\n"));
  std::string zeros = folder.read("copy/adapter_model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, zeros.data(), sizeof header);
  std::fill(zeros.begin() + static_cast<std::ptrdiff_t>(8 + header), zeros.end(), '\0');
  folder.write("adapted/adapter_model.safetensors", zeros);
  EXPECT_THAT(inspected(folder.path() / "adapted"),
              ContainsRegex("([0-9]+) of ([0-9]+) lora_B are zero: the adapter changes nothing in the model\n"));
  const char *model = "nf4/llama/model", *stored = "model.safetensors";
  EXPECT_THAT(changed(model, stored, ".absmax", ".absmix"), ContainsRegex("broken: .*expected .*\\.absmax"));
  EXPECT_THAT(changed(model, stored, "weight.quant_state", "weight.quant_stata"), HasSubstr("without its codes"));
  EXPECT_THAT(changed(model, "config.json", "\"bitsandbytes\"", "\"gptq\""), HasSubstr("no quantization_config"));
}

// Describes files that are neither tokens nor text for strata tokenize, and says what to do with them.
TEST(InspectTest, DescribesOtherKindsOfFiles) {
  const tests::ScratchFolder folder;
  std::ostringstream out;
  const auto is = [&](const std::string& name, const std::string& text, const std::string& kind,
                      const std::string& act) {
    SCOPED_TRACE(name);
    EXPECT_FAILURE(inspect(folder.write(name, text), Tensors::all, out), Exit::usage,
                   AllOf(HasSubstr(name + " " + kind), HasSubstr(act)));
  };
  is("my.toml", "[model]\npreset = \"tiny-gpt2\"\n[training]\nmax_steps = 100 # and more, long enough for text\n",
     "is a recipe", "strata plan");
  is("machine.toml", "processor = \"x\"\ntask_overhead_us = 1.5\n", "is a machine file", "--machine");
  const std::string document = R"({"text": "A document, long enough to look like what people write, and more."})";
  is("docs.jsonl", document + "\n" + document, "holds documents", "strata tokenize");
  is("broken.jsonl", "{\"text\": \n", "holds documents", "strata tokenize");
  is("unnamed", document + "\n" + document, "holds documents", "strata tokenize");
  is("log.jsonl", R"({"step":1,"loss":5.5,"lr":0.1})", "is the report.jsonl of a run", "JSON");
  is("a.bin.json", R"({"vocab_size": 256, "width": 2, "count": 6})", "is the sidecar", "/a.bin shows");
  is("manifest.json", "{}", "is the manifest of a checkpoint", folder.path().string() + " shows");
  is("config.json", "{\n\"model_type\": \"gpt2\"}\n", "belongs to a model", "strata inspect");
  is("trace.json", R"({"traceEvents": []})", "is the timeline", "perfetto");
  is("summary.json", R"({"weights_hash": "00"})", "is the report.summary", "JSON");
  is("any.json", R"({"a": 1})", "is JSON", "any tool");
  is("tokenizer.model", "pieces", "is a tokenizer", "strata tokenize --tokenizer");
  is("text", std::string(8, 'x') + " the quick brown fox jumps over the lazy dog and on and on and on",
     "looks like text", "strata tokenize");
  is("my $recipe.toml", "[model]\npreset = \"tiny-gpt2\"\n[training]\nmax_steps = 100 # and more, to be long enough\n",
     "is a recipe", "strata plan '" + (folder.path() / "my $recipe.toml").string() + "' shows");
  is("a b.bin.json", R"({"vocab_size": 256, "width": 2, "count": 6})", "is the sidecar", "/a b.bin' shows");
  is("it's.model", "pieces", "is a tokenizer", "it'\\''s.model' makes");
}

TEST(InspectTest, RefusesCorruptAndMissingFiles) {
  const tests::ScratchFolder folder;
  std::ostringstream out;
  EXPECT_FAILURE(inspect(folder.path() / "none", Tensors::all, out), Exit::usage, HasSubstr("none"));
  EXPECT_FAILURE(inspect(folder.path(), Tensors::all, out), Exit::usage,
                 AllOf(HasSubstr("holds neither checkpoints nor safetensors"), Not(HasSubstr("such as"))));
  const tests::ScratchFolder runs;
  runs.write("chat.bin", "1234");
  runs.write("model/config.json", "{}");
  EXPECT_FAILURE(
      inspect(runs.path(), Tensors::all, out), Exit::usage,
      AllOf(HasSubstr("such as " + (runs.path() / "chat.bin").string()), HasSubstr((runs.path() / "model").string())));
  EXPECT_FAILURE(inspect(folder.write("e.bin", ""), Tensors::all, out), Exit::corrupt, HasSubstr("empty"));
  EXPECT_FAILURE(inspect(folder.write("x.safetensors", "12345678{}"), Tensors::all, out), Exit::corrupt,
                 HasSubstr("header"));
}

}  // namespace
}  // namespace strata::launcher

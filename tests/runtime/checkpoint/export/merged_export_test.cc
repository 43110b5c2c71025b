// A peft folder that is exported as a model is merged into the base that it names.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MergedExport, EqualsTheExportOfTheCheckpoint) {
  for (const char* dora : {"adapter.dora=false", "adapter.dora=true"}) {
    const SavedRun run;
    const auto place = [&](const char* name) { return run.folder().path() / name; };
    (void)run.run(1, run.sets(1, {}), 1, {1});
    export_model(ModelFolder(run.checkpoints()), place("base"), {});
    std::filesystem::remove_all(run.checkpoints());
    std::vector<std::string> sets =
        run.sets(1, {"adapter.kind=lora", "adapter.rank=4", dora, "optimizer.learning_rate=1e-2"});
    std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
    sets.push_back("model.path=" + place("base").string());
    (void)run.run(1, sets, 3, {3});
    export_model(ModelFolder(run.checkpoints()), place("of-checkpoint"), {});
    export_adapter(ModelFolder(run.checkpoints()), place("peft"), {});
    std::string config = bytes_of(place("base") / "config.json");
    config.insert(config.find('{') + 1, "\"of_tomorrow\": 1,");
    std::ofstream(place("base") / "config.json") << config;
    const Workload workload = open_workload(
        load_recipe(std::nullopt, std::vector<std::string>{"model.path=" + place("peft").string(), "data.seq_len=1"}));
    const auto adapted = adapted_model(workload);
    EXPECT_THAT(export_merged(workload, *adapted, place("of-adapter"), {}),
                AllOf(Contains(HasSubstr("is an adapter: it is read with its base model")),
                      Contains(HasSubstr("of_tomorrow"))));
    const std::string merged = bytes_of(place("of-adapter") / "model.safetensors");
    EXPECT_EQ(merged, bytes_of(place("of-checkpoint") / "model.safetensors")) << dora;
    EXPECT_NE(merged, bytes_of(place("base") / "model.safetensors")) << dora;
  }
}

// Writes the tensors of golden BERT whose names do not begin with `left_out`, and its configuration.
void write_bert(const std::filesystem::path& folder, std::string_view left_out) {
  const std::filesystem::path golden = tests::source_dir() / "tests/golden/bert/model";
  const auto file = models::Safetensors::open(golden);
  std::vector<models::TensorSpec> tensors;
  std::string data;
  for (const models::StoredTensor& tensor : file.tensors()) {
    if (!left_out.empty() && tensor.name.starts_with(left_out)) continue;
    tensors.push_back({tensor.name, *tensor.type, {tensor.shape.begin(), tensor.shape.end()}});
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(golden / "config.json", folder / "config.json");
  std::ofstream(folder / "model.safetensors", std::ios::binary) << models::safetensors_header(tensors) << data;
}

// An adapter that was trained on a model with a head names a base without one.
TEST(MergedExport, ReportsRandomValues) {
  const tests::ScratchFolder folder;
  const auto notes_with = [&](std::string_view left_out) {
    const std::string name = left_out.empty() ? "whole" : "headless";
    const std::filesystem::path base = folder.path() / name, peft = folder.path() / (name + "-peft");
    write_bert(base, left_out);
    std::filesystem::create_directories(peft);
    const std::string layer = "bert.encoder.layer.1.output.dense";
    PeftConfig config;
    config.adapter.rank = 1;
    config.adapter.target_modules = {{layer}, {}};
    config.base = base.string();
    std::ofstream(peft / kPeftConfigName) << peft_config_json(config, "");
    const std::vector<models::TensorSpec> factors = {
        {kPeftPrefix + layer + ".lora_A.weight", device::DType::fp32, {1, 72}},
        {kPeftPrefix + layer + ".lora_B.weight", device::DType::fp32, {40, 1}}};
    std::ofstream(peft / kPeftWeightsName, std::ios::binary)
        << models::safetensors_header(factors) << std::string((72 + 40) * sizeof(float), '\0');
    const Workload workload = open_workload(
        load_recipe(std::nullopt, std::vector<std::string>{"model.path=" + peft.string(), "data.seq_len=1"}));
    return export_merged(workload, *adapted_model(workload), folder.path() / (name + "-merged"), {});
  };
  EXPECT_THAT(notes_with(""), Not(Contains(HasSubstr("random values"))));
  EXPECT_THAT(notes_with("cls."),
              Contains(AllOf(HasSubstr("neither " + (folder.path() / "headless").string() + " nor "),
                             HasSubstr("has cls.predictions."), HasSubstr("headless-merged has random values"),
                             HasSubstr("base_model_name_or_path in " +
                                       (folder.path() / "headless-peft" / kPeftConfigName).string()))));
}

}  // namespace
}  // namespace strata::runtime

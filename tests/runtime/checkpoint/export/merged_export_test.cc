// A peft folder that is exported as a model is merged into the base that it names.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/exporter.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

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
                testing::AllOf(testing::Contains(testing::HasSubstr("is an adapter: it is read with its base model")),
                               testing::Contains(testing::HasSubstr("of_tomorrow"))));
    const std::string merged = bytes_of(place("of-adapter") / "model.safetensors");
    EXPECT_EQ(merged, bytes_of(place("of-checkpoint") / "model.safetensors")) << dora;
    EXPECT_NE(merged, bytes_of(place("base") / "model.safetensors")) << dora;
  }
}

}  // namespace
}  // namespace strata::runtime

#include "launcher/adapter_option.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void look_at(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"model.path=/model", "data.validation=/v.bin", "data.seq_len=8"});
  sets.emplace_back("adapter.path=/ours");
  require_sole_adapter("/ours", runtime::load_with_notes(std::nullopt, sets));
}

TEST(AdapterOption, ContradictsAnotherAdapterAndACheckpoint) {
  look_at({});
  look_at({"adapter.path=/x/../ours"});
  EXPECT_FAILURE(look_at({"adapter.path=/theirs"}), Exit::usage, AllOf(HasSubstr("/theirs"), HasSubstr("/ours")));
  EXPECT_FAILURE(look_at({"checkpoint.resume=/runs/step-1"}), Exit::usage,
                 AllOf(HasSubstr("/runs/step-1"), HasSubstr("/ours")));
  const tests::ScratchFolder folder;
  const std::string dir = "checkpoint.dir=" + folder.path().string();
  look_at({dir});
  folder.write("step-00000001/manifest.json", "{}");
  EXPECT_FAILURE(look_at({dir}), Exit::usage, HasSubstr("checkpoint.resume=none"));
  look_at({dir, "checkpoint.resume=none"});
}

// MODEL may be the adapter alone. Its file names the base by a path relative to the current folder or its own.
TEST(AdapterOption, ReadsAnAdapterGivenAsModelWithItsBase) {
  const tests::ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "the-base");
  const auto taken = [&](const std::string& base, std::optional<std::filesystem::path> adapter = std::nullopt) {
    folder.write("adapter/adapter_config.json", R"({"peft_type": "LORA", "target_modules": ["c_attn"], )"
                                                R"("base_model_name_or_path": ")" +
                                                    base + "\"}");
    std::filesystem::path model = folder.path() / "adapter";
    std::vector<std::string> sets = {"adapter.rank=4"};
    comm::run_threads(1, [&](comm::World& world) { take_base_of(model, adapter, sets, world); });
    if (model != folder.path() / "adapter") {
      EXPECT_EQ(adapter, folder.path() / "adapter");
      EXPECT_EQ(sets.front(), "adapter.path=\"" + adapter->string() + '"');
    }
    EXPECT_EQ(sets.back(), "adapter.rank=4");
    return model;
  };
  EXPECT_EQ(taken((folder.path() / "the-base").string()), folder.path() / "the-base");
  EXPECT_EQ(taken("../the-base"), folder.path() / "the-base");
  EXPECT_EQ(taken("the-base"), folder.path() / "adapter") << "there is none";
  EXPECT_EQ(taken("../the-base", "/another"), folder.path() / "adapter") << "two adapters";
}

// The refusal is that of train and eval, whose recipe names the folder as model.path.
TEST(AdapterOption, ContradictsAModelWithoutAdapters) {
  const tests::ScratchFolder folder;
  folder.write("adapter/adapter_config.json",
               R"({"peft_type": "LORA", "target_modules": ["c_attn"], "base_model_name_or_path": "../base"})");
  std::filesystem::create_directory(folder.path() / "base");
  const auto take = [&](const std::string& kind) {
    comm::run_threads(2, [&](comm::World& world) {
      std::filesystem::path model = folder.path() / "adapter";
      std::optional<std::filesystem::path> adapter;
      std::vector<std::string> sets = {"adapter.rank=4", kind};
      take_base_of(model, adapter, sets, world);
    });
  };
  EXPECT_NO_THROW(take("adapter.kind=lora"));
  EXPECT_FAILURE(take("adapter.kind=none"), Exit::usage,
                 AllOf(HasSubstr("contradict each other: the folder holds an adapter"),
                       HasSubstr("leave adapter.kind out, give the base model alone"), HasSubstr("merge first")));
}

// A relative path may lead to one folder from here, and to another from the adapter's own.
TEST(AdapterOption, PrefersTheBaseInTheCurrentFolder) {
  namespace fs = std::filesystem;
  const tests::ScratchFolder folder;
  folder.write("adapter/adapter_config.json",
               R"({"peft_type": "LORA", "target_modules": ["c_attn"], "base_model_name_or_path": "base"})");
  const fs::path adapter = folder.path() / "adapter", before = fs::current_path();
  fs::create_directory(adapter / "base");
  fs::current_path(folder.path());
  const auto note = [&] { return runtime::note_of_base(adapter, *runtime::base_folder_of(adapter)); };
  EXPECT_EQ(runtime::base_folder_of(adapter), adapter / "base");
  EXPECT_THAT(note(), testing::EndsWith("(base_model_name_or_path)"));
  fs::create_directory(folder.path() / "base");
  EXPECT_EQ(runtime::base_folder_of(adapter), fs::path("base"));
  EXPECT_THAT(note(), HasSubstr("where peft looks, and not with " + (adapter / "base").string()));
  fs::current_path(adapter);
  EXPECT_THAT(note(), testing::EndsWith("(base_model_name_or_path)")) << "one folder";
  fs::current_path(before);
}

}  // namespace
}  // namespace strata::launcher

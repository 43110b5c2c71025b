#include "runtime/checkpoint/export/adapter_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// The notes of a run with golden Llama as model.path and an adapter that names this base.
std::vector<std::string> notes_with_base(const tests::ScratchFolder& folder, const std::string& base,
                                         const fs::path& model = tests::source_dir() / "tests/golden/llama/model") {
  folder.write("adapter/adapter_config.json", R"({"peft_type": "LORA", "target_modules": ["q_proj"], )"
                                              R"("base_model_name_or_path": ")" +
                                                  base + "\"}");
  const std::vector<std::string> sets = {"model.path=" + model.string(),
                                         "adapter.path=" + (folder.path() / "adapter").string(), "data.seq_len=8"};
  return open_workload(load_recipe(std::nullopt, sets)).config().notes();
}

// Nothing else shows it if two models have the same shapes.
TEST(AdapterFolder, NotesAnotherModelThanItsBase) {
  const tests::ScratchFolder folder;
  const fs::path model = tests::source_dir() / "tests/golden/llama/model", copy = folder.path() / "copies/model";
  const std::vector<std::string> otherwise = notes_with_base(folder, model.string());
  EXPECT_EQ(notes_with_base(folder, "somebody/llama"), otherwise) << "a name on the Hub";
  EXPECT_EQ(notes_with_base(folder, ""), otherwise);
  fs::create_symlink(model, folder.path() / "link");
  EXPECT_EQ(notes_with_base(folder, "../link"), otherwise) << "the same folder";

  fs::create_directories(copy.parent_path());
  fs::copy(model, copy, fs::copy_options::recursive);
  EXPECT_THAT(notes_with_base(folder, copy.string()),
              Contains(AllOf(HasSubstr("was trained on " + copy.string() +
                                       " (base_model_name_or_path), but is used "
                                       "with " +
                                       model.string() + ": give the former"),
                             Not(HasSubstr("model_type")))));
  EXPECT_THAT(notes_with_base(folder, "../copies/model"), Contains(HasSubstr("was trained on " + copy.string())));
  folder.write("copies/model/config.json", R"({"model_type": "qwen2"})");
  EXPECT_THAT(notes_with_base(folder, copy.string()),
              Contains(HasSubstr("/copies/model, whose model_type is qwen2, (base_model_name_or_path), but is used "
                                 "with " +
                                 model.string() + ", whose model_type is llama: give")));
}

}  // namespace
}  // namespace strata::runtime

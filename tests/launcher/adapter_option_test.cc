#include "launcher/adapter_option.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void look_at(std::vector<std::string> sets) {
  sets.insert(sets.begin(), {"model.path=/model", "data.validation=/v.bin", "data.seq_len=8"});
  sets.emplace_back("adapter.path=/ours");
  require_sole_adapter("/ours", runtime::load_recipe(std::nullopt, sets));
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

}  // namespace
}  // namespace strata::launcher

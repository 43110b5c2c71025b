#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/objective/objective.h"
#include "runtime/objective/rules.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::runtime {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// If a chat's tokens were copied without their mask, all of them would be trained on.
TEST(CausalLmTest, NotesFilesWithoutASidecar) {
  const tests::TokenFolder folder{130};
  const auto one = folder.write("a.bin", {9, 5}, "01111111111111"), other = folder.write("b.bin", {9, 5});
  const auto notes = [&] {
    Workload workload = open_workload(load_recipe(
        std::nullopt, std::vector<std::string>{"model.preset=tiny-gpt2", "data.seq_len=4", "data.train=" + one.string(),
                                               "data.validation=" + other.string()}));
    (void)resolve_workload(workload, false);
    return workload.data.notes;
  };
  EXPECT_THAT(notes(), IsEmpty());
  std::filesystem::remove(one.string() + ".json");
  std::filesystem::remove(one.string() + ".mask");
  EXPECT_THAT(
      notes(),
      Contains(one.string() +
               " has no sidecar (a.bin.json): every token is trained on, and it is unknown where documents begin"));
  std::filesystem::remove(other.string() + ".json");
  EXPECT_THAT(notes(), Contains(HasSubstr("a.bin and 1 more have no sidecar")));
}

}  // namespace
}  // namespace strata::runtime

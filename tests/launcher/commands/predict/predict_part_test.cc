#include "launcher/commands/predict/predict_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PredictPartTest, TheFirstRowThatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(row_not_finite(std::vector<float>{1, 2, 3, 4}, 2), std::nullopt);
  EXPECT_EQ(row_not_finite(std::vector<float>{1, 2, 3, std::nanf(""), inf, 0}, 2), 1u);
  EXPECT_EQ(row_not_finite(std::vector<float>{-inf, 2}, 2), 0u);
}

TEST(PredictPartTest, TakesNoNameThatAnotherHas) {
  const tests::ScratchFolder folder;
  const auto part = folder.path() / "o.part", tokens = folder.path() / "o.tokens";
  require_free_names(part, {tokens});
  folder.write("o.tokens", "mine");
  EXPECT_FAILURE(require_free_names(part, {tokens}), Exit::usage,
                 AllOf(HasSubstr("o.tokens"), HasSubstr("in the way")));
  // Of an earlier prediction, which was killed.
  folder.write("o.part", "strata predict by 1 of 2\n");
  require_free_names(part, {tokens});
  folder.write("o.part", "");  // killed before that line was written
  require_free_names(part, {tokens});
  for (const char* other : {"mine", "strata predict"}) {
    folder.write("o.part", other);
    EXPECT_FAILURE(require_free_names(part, {}), Exit::usage, AllOf(HasSubstr("o.part"), HasSubstr("in the way")));
  }
}

TEST(PredictPartTest, NamesAreClaimedBeforeTheFilesAreThere) {
  const tests::ScratchFolder folder;
  const auto part = folder.path() / "o.part", tokens = folder.path() / "o.tokens";
  claim_names(part);
  folder.write("o.tokens", "of a prediction that was killed");
  require_free_names(part, {tokens});
  give_up_names(part);
  EXPECT_FALSE(std::filesystem::exists(part));
  folder.write("o.part", "strata predict by 1 of 2\nrounds");
  claim_names(part);
  give_up_names(part);
  EXPECT_EQ(folder.read("o.part"), "strata predict by 1 of 2\nrounds");
}

TEST(PredictPartTest, AFileThatCannotBeWrittenIsSaid) {
  const tests::ScratchFolder folder;
  PredictPart part(folder.path() / "none" / "o.part", "strata predict by 1", 2);
  std::map<std::int32_t, std::vector<float>> rows;
  EXPECT_FAILURE(part.read(rows), Exit::failed, HasSubstr("cannot be written"));
}

TEST(PredictPartTest, GoesOnAfterTheLastWholeRound) {
  const tests::ScratchFolder folder;
  std::map<std::int32_t, std::vector<float>> rows;
  {
    PredictPart part(folder.path() / "o.part", "strata predict by 1", 2);
    EXPECT_EQ(part.read(rows), 0u);
    part.add(3, std::vector<std::int32_t>{0, 2}, std::vector<float>{1, 2, 3, 4});
  }
  folder.write("o.part", folder.read("o.part") + "half a round");
  PredictPart part(folder.path() / "o.part", "strata predict by 1", 2);
  EXPECT_EQ(part.read(rows), 3u);
  EXPECT_EQ(rows, (std::map<std::int32_t, std::vector<float>>{{0, {1, 2}}, {2, {3, 4}}}));
  part.add(4, std::vector<std::int32_t>{1}, std::vector<float>{5, 6});
  PredictPart again(folder.path() / "o.part", "strata predict by 1", 2);
  EXPECT_EQ(again.read(rows), 4u);
  EXPECT_EQ(rows.size(), 3u);
}

}  // namespace
}  // namespace strata::launcher

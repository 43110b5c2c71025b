#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <map>

#include "launcher/commands/predict/predict.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(PredictPartTest, FindsTheFirstNonFiniteRow) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(row_not_finite(std::vector<float>{1, 2, 3, 4}, 2), std::nullopt);
  EXPECT_EQ(row_not_finite(std::vector<float>{1, 2, 3, std::nanf(""), inf, 0}, 2), 1u);
  EXPECT_EQ(row_not_finite(std::vector<float>{-inf, 2}, 2), 0u);
}

TEST(PredictPartTest, DoesNotTakeAnotherFilesName) {
  const tests::ScratchFolder folder;
  const auto part = folder.path() / "o.part", tokens = folder.path() / "o.tokens";
  require_free_names(part, {tokens});
  folder.write("o.tokens", "mine");
  EXPECT_FAILURE(require_free_names(part, {tokens}), Exit::usage,
                 AllOf(HasSubstr("o.tokens"), HasSubstr("did not write it")));
  // The files that an earlier, killed prediction left.
  folder.write("o.part", "strata predict by 1 of 2\n");
  require_free_names(part, {tokens});
  folder.write("o.part", "");  // killed before that line was written
  require_free_names(part, {tokens});
  for (const char* other : {"mine", "strata predict"}) {
    folder.write("o.part", other);
    EXPECT_FAILURE(require_free_names(part, {}), Exit::usage,
                   AllOf(HasSubstr("o.part"), HasSubstr("did not write it")));
  }
}

TEST(PredictPartTest, ClaimsNamesBeforeTheFilesExist) {
  const tests::ScratchFolder folder;
  const auto part = folder.path() / "o.part", tokens = folder.path() / "o.tokens";
  reserve_names(part);
  folder.write("o.tokens", "of a prediction that was killed");
  require_free_names(part, {tokens});
  release_names(part);
  EXPECT_FALSE(std::filesystem::exists(part));
  folder.write("o.part", "strata predict by 1 of 2\nrounds");
  reserve_names(part);
  release_names(part);
  EXPECT_EQ(folder.read("o.part"), "strata predict by 1 of 2\nrounds");
}

std::vector<runtime::RowLocation> empty_places(std::size_t rows = 10) {
  return std::vector<runtime::RowLocation>(rows);
}
std::map<std::int64_t, std::vector<float>> all_of(PredictPart& part) {
  std::map<std::int64_t, std::vector<float>> out;
  part.each_row([&](std::int64_t row, std::span<const float> scores) {
    EXPECT_TRUE(out.empty() || out.rbegin()->first < row) << "in order";
    out[row].assign(scores.begin(), scores.end());
  });
  return out;
}

TEST(PredictPartTest, ReportsAFileThatCannotBeWritten) {
  const tests::ScratchFolder folder;
  auto places = empty_places();
  PredictPart part(folder.path() / "none" / "o.part", "strata predict by 1", 2, places);
  EXPECT_FAILURE((void)part.open(), Exit::failed, HasSubstr("cannot be written"));
}

TEST(PredictPartTest, AFullDiskIsExitCodeThreeWithAdvice) {
  const tests::ScratchFolder folder;
  auto places = empty_places(100);
  PredictPart part(folder.path() / "o.part", "strata predict by 1", 2, places);
  EXPECT_EQ(part.open(), 0u);
  const std::vector<std::int32_t> rows(50, 1);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 300, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = tests::failure_of([&] { part.add(1, rows, std::vector<float>(100)); });
  // There is no room for the line that claims the names, either.
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const Error claimed = tests::failure_of([&] { reserve_names(folder.path() / "p.part"); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  for (const Error& one : {error, claimed}) {
    EXPECT_EQ(one.code(), Exit::does_not_fit);
    EXPECT_THAT(one.what(), AllOf(HasSubstr(".part cannot be written"), HasSubstr("errno 27")));
  }
}

TEST(PredictPartTest, ContinuesAfterTheLastCompleteRound) {
  const tests::ScratchFolder folder;
  auto places = empty_places();
  {
    PredictPart part(folder.path() / "o.part", "strata predict by 1", 2, places);
    EXPECT_EQ(part.open(), 0u);
    part.add(3, std::vector<std::int32_t>{2, 0}, std::vector<float>{1, 2, 3, 4});
    EXPECT_EQ(all_of(part), (std::map<std::int64_t, std::vector<float>>{{0, {3, 4}}, {2, {1, 2}}}));
  }
  folder.write("o.part", folder.read("o.part") + "half a round, which is longer than its head");
  PredictPart part(folder.path() / "o.part", "strata predict by 1", 2, places);
  EXPECT_EQ(part.open(), 3u);
  EXPECT_EQ(all_of(part), (std::map<std::int64_t, std::vector<float>>{{0, {3, 4}}, {2, {1, 2}}}));
  part.add(4, std::vector<std::int32_t>{1}, std::vector<float>{5, 6});
  PredictPart again(folder.path() / "o.part", "strata predict by 1", 2, places);
  EXPECT_EQ(again.open(), 4u);
  EXPECT_EQ(all_of(again), (std::map<std::int64_t, std::vector<float>>{{0, {3, 4}}, {1, {5, 6}}, {2, {1, 2}}}));
  PredictPart other(folder.path() / "o.part", "strata predict by 2", 2, places);
  EXPECT_EQ(other.open(), 0u) << "of another model";
  EXPECT_EQ(other.rows(), 0u);
  EXPECT_EQ(folder.read("o.part"), "strata predict by 2\n");
}

// A damaged file cannot supply more rows than there are texts.
TEST(PredictPartTest, IgnoresRowsBeyondTheNumberOfTexts) {
  const tests::ScratchFolder folder;
  auto places = empty_places();
  {
    PredictPart part(folder.path() / "o.part", "strata predict by 1", 1, places);
    (void)part.open();
    part.add(1, std::vector<std::int32_t>{0, 1}, std::vector<float>{1, 2});
    part.add(2, std::vector<std::int32_t>{2, 3}, std::vector<float>{3, 4});
  }
  auto few = empty_places(3);
  PredictPart part(folder.path() / "o.part", "strata predict by 1", 1, few);
  EXPECT_EQ(part.open(), 1u);
  EXPECT_EQ(part.rows(), 2u);
}

}  // namespace
}  // namespace strata::launcher

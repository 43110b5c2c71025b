#include "launcher/launch/ranks/rank_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/screen/printable.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct RankOutputTest : testing::Test {
  // The lines of ranks' standard error that reach the screen.
  std::string screen(RankOutput& output, const std::vector<std::string>& lines) {
    testing::internal::CaptureStderr();
    for (const std::string& line : lines) output.take(true, line);
    EXPECT_TRUE(output.drain(30));
    return testing::internal::GetCapturedStderr();
  }

  LaunchScreen screen_;
};

TEST_F(RankOutputTest, HidesMpirunsOwnOutput) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 2);
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:step 1", "----------", "mpirun detected that one or more processes exited",
                            "[1,1]<stderr>:step 2"}),
            "step 1\nstep 2\n");
  EXPECT_THAT(output.starter_output(), ElementsAre("----------", "mpirun detected that one or more processes exited"));
}

// mpirun forwards what it has read: a line may come in pieces, each with its tag.
TEST_F(RankOutputTest, JoinsPiecesOfALine) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 2);
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:a long[1,0]<stderr>: line", "[n1:5] warning[1,1]<stderr>:[1, 2]<x>"}),
            "a long line\n[1, 2]<x>\n");
  EXPECT_THAT(output.starter_output(), ElementsAre("[n1:5] warning"));
  // Pieces of another rank come between them.
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:one[1,1]<stderr>:two", "[1,0]<stderr>: line", "[1,1]<stderr>:three"}),
            "two\none line\nthree\n");
}

// prterun, the mpirun of Open MPI 5, adds a space after its tags. The rest of the line is the rank's own.
TEST_F(RankOutputTest, ReadsTagsOfOpenMpi5) {
  RankOutput output(Starter::prterun, screen_, std::nullopt, 2);
  EXPECT_EQ(screen(output, {"[1,0]<stderr>: step[1,0]<stderr>:  1", "[1,0]<stderr>: ", "[1,1]<stderr>:   two"}),
            "step 1\n\n  two\n");
  RankOutput of_4(Starter::mpirun, screen_, std::nullopt, 2);
  EXPECT_EQ(screen(of_4, {"[1,1]<stderr>:  two"}), "  two\n");
}

// The last output of a rank may have no line break.
TEST_F(RankOutputTest, CompletesAnUnfinishedLineAtTheEnd) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 2);
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:strata: it broke" + failure_end(Exit::failed) + "[1,1]<stderr>:step 1"}),
            "step 1\n");
  EXPECT_EQ(output.failure(), "");
  testing::internal::CaptureStderr();
  output.finish();
  EXPECT_TRUE(output.drain(30));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "strata: it broke\n");
  EXPECT_EQ(output.failure(), "it broke");
}

TEST_F(RankOutputTest, TheCauseIsARanksError) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 2);
  const std::string end = failure_end(Exit::requeue);
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:strata: a note", "[1,1]<stderr>:strata: rank 1: it broke" + end}),
            "strata: a note\nstrata: rank 1: it broke\n");
  EXPECT_EQ(output.failure(), "rank 1: it broke");
  EXPECT_EQ(output.failure_code(), 75);
  // Later lines of other ranks are not a cause.
  (void)screen(output, {"[1,0]<stderr>:strata: another note", "[1,0]<stderr>:step 9"});
  EXPECT_EQ(output.failure(), "rank 1: it broke");

  // A stop that launch requested from the other ranks does not replace the cause. Another cause does.
  (void)screen(output,
               {"[1,0]<stderr>:strata: it was stopped" + failure_end(Exit::failed, {EndReason::Kind::signal, 9})});
  EXPECT_EQ(output.failure(), "rank 1: it broke");
  EXPECT_EQ(output.end_reason(), EndReason{});
  (void)screen(output,
               {"[1,0]<stderr>:strata: no number" + failure_end(Exit::failed, {EndReason::Kind::not_finite, 9})});
  EXPECT_EQ(output.failure(), "no number");
  EXPECT_EQ(output.end_reason(), (EndReason{EndReason::Kind::not_finite, 9}));

  RankOutput several(Starter::mpirun, screen_, std::nullopt, 1);
  (void)screen(several, {"[1,0]<stderr>:strata: it does not fit; what would:", "[1,0]<stderr>:  zero.stage = 3" + end});
  EXPECT_EQ(several.failure(), "it does not fit; what would:\n  zero.stage = 3");
}

// A sentence consists of its own rank's lines only, and later output does not extend it.
TEST_F(RankOutputTest, IgnoresOtherRanksLinesWithinASentence) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 2);
  (void)screen(output, {"[1,1]<stderr>:strata: it does not fit; what would:", "[1,0]<stderr>:NCCL INFO x",
                        "[1,1]<stderr>:  zero.stage = 3" + failure_end(Exit::does_not_fit)});
  EXPECT_EQ(output.failure(), "it does not fit; what would:\n  zero.stage = 3");
  const std::string more(1000, 'x');
  output.take(true, "[1,1]<stderr>:strata: it broke:");
  for (int i = 0; i < 100; ++i) output.take(true, "[1,1]<stderr>:" + more);
  output.take(true, "[1,1]<stderr>:" + more + failure_end(Exit::failed));
  EXPECT_THAT(output.failure(), testing::StartsWith("it broke:\n"));
  EXPECT_LT(output.failure().size(), 20000U);
}

TEST_F(RankOutputTest, TheLastMessageIsALineWithContent) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 1);
  EXPECT_EQ(output.last_message(), "");
  (void)screen(output, {"[1,0]<stderr>:strata: data      1 file", "[1,0]<stderr>:strata:           4.8 epochs"});
  EXPECT_EQ(output.last_message(), "data      1 file");
  (void)screen(output, {"[1,0]<stderr>:step 7/20  loss 1.5  lr 1e-3"});
  EXPECT_EQ(output.last_message(), "step 7/20");
}

// /dev/full refuses each write as a full disk does.
TEST_F(RankOutputTest, AFullLogDiskIsReportedOnceAndTheScreenContinues) {
  const tests::ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "rank-00000.log");
  RankOutput output(Starter::mpirun, screen_, folder.path(), 2);
  EXPECT_THAT(screen(output, {"[1,0]<stderr>:step 1", "[1,1]<stderr>:step 1"}),
              AllOf(HasSubstr("step 1\n"), HasSubstr("strata: --logs: " + folder.path().string() +
                                                     " cannot be written (No space left on device)")));
  EXPECT_EQ(screen(output, {"[1,0]<stderr>:step 2", "[1,1]<stderr>:step 2"}), "step 2\nstep 2\n");
  EXPECT_EQ(folder.read("rank-00001.log"), "step 1\nstep 2\n");
}

TEST_F(RankOutputTest, ReadsLabelsOfSrun) {
  RankOutput output(Starter::srun, screen_, std::nullopt, 12);
  EXPECT_EQ(screen(output, {" 3: step 1", "11:", "srun: error: n2: task 3: Exited with exit code 1"}), "step 1\n\n");
  EXPECT_THAT(output.starter_output(), ElementsAre("srun: error: n2: task 3: Exited with exit code 1"));
}

TEST_F(RankOutputTest, ARestartAppendsToTheRanksFiles) {
  const tests::ScratchFolder folder;
  for (const char* text : {"first", "second"}) {
    RankOutput output(Starter::mpirun, screen_, folder.path(), 2);
    (void)screen(output, {std::string("[1,1]<stderr>:") + text});
    testing::internal::CaptureStdout();
    output.take(false, "[1,0]<stdout>:out");
    output.take(true, "mpirun: a word of its own");
    EXPECT_TRUE(output.drain(30));
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "out\n");
  }
  EXPECT_EQ(folder.read("rank-00001.log"), "first\nsecond\n");
  EXPECT_EQ(folder.read("rank-00000.log"), "out\nout\n");
  EXPECT_EQ(folder.read("launch.log"), "mpirun: a word of its own\nmpirun: a word of its own\n");
}

// After weeks of warnings, the last ones say why the run ended.
TEST_F(RankOutputTest, KeepsTheLastOfMpirunsOutput) {
  RankOutput output(Starter::mpirun, screen_, std::nullopt, 1);
  for (int line = 0; line < 5000; ++line) output.take(true, std::to_string(line));
  EXPECT_LE(output.starter_output().size(), 1000u);
  EXPECT_EQ(output.starter_output().back(), "4999");
}

TEST(CauseIn, NamesRankAndNodeOfASignal) {
  const std::vector<Share> shares = {{"n1", 2}, {"n2", 2}};
  EXPECT_THAT(
      cause_in({"mpirun noticed that process rank 3 with PID 12 on node n2 exited on signal 9 (Killed)."}, shares),
      AllOf(HasSubstr("rank 3 on n2"), HasSubstr("signal 9 (Killed)")));
  EXPECT_THAT(
      cause_in({"prterun noticed that process rank 1 with PID 12 on node n1 exited on", "signal 9 (Killed)."}, shares),
      AllOf(HasSubstr("rank 1 on n1"), HasSubstr("signal 9 (Killed)")));
  EXPECT_THAT(cause_in({"srun: error: n2: task 3: Exited with exit code 1", "srun: error: n2: task 2: Killed"}, shares),
              HasSubstr("rank 2 on n2 ended: Killed"));
  const runtime::Mesh mesh{4, {}, 0, 1, 2};
  EXPECT_THAT(cause_in({"mpirun noticed that process rank 3 with PID 12 on node n2 exited on signal 9 (Killed)."},
                       shares, mesh),
              HasSubstr("rank 3 (data 1, stage 1) on n2 was ended"));
  EXPECT_THAT(cause_in({"srun: error: n2: task 2: Killed"}, shares, mesh), HasSubstr("rank 2 (data 0, stage 1) on n2"));
  EXPECT_THAT(cause_in({"srun: error: n2: tasks 2-3: Killed"}, shares, mesh), HasSubstr("rank 2-3 on n2 ended"));
  EXPECT_THAT(cause_in({"srun: error: Node failure on n2"}, shares), HasSubstr("node n2 failed"));
  EXPECT_THAT(cause_in({"srun: error: n2: task 3: Exited with exit code 1", "------"}, shares), IsEmpty());
}

}  // namespace
}  // namespace strata::launcher

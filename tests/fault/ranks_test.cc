// If ranks were started differently or see different files, one sentence says so, and no rank waits forever.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class RanksFault : public testing::Test {
 protected:
  RanksFault() { std::filesystem::create_directory(run_.file("other")); }

  // A script in which only rank `rank` does `instead`. Ranks wait for it for two seconds only.
  static std::string instead_of(int rank, const std::string& instead) {
    return fmt::format("export STRATA_CONNECT_SECONDS=2; test $OMPI_COMM_WORLD_RANK = {} && {}; exec \"$@\"", rank,
                       instead);
  }
  // Runs each rank in its own folder, so that a path below /proc/self/cwd is a different file on each.
  std::string apart() const {
    return "cd " + run_.folder().path().string() +
           "; test $OMPI_COMM_WORLD_RANK = 0 || cd other; "
           "exec \"$@\"";
  }
  TinyRun run_;
};

TEST_F(RanksFault, OneRankRunsAnotherProgramOrCommand) {
  const std::string plan = "exec " + kStrata + " plan --set model.preset=tiny-gpt2 --set data.seq_len=16";
  const struct {
    int rank;
    std::string instead;
  } others[] = {{1, "exec true"}, {1, "exec " + kStrata + " keys"}, {0, plan}};
  for (const auto& other : others) {
    SCOPED_TRACE(other.instead);
    const Outcome outcome = run(under_mpirun(2, run_.train(), instead_of(other.rank, other.instead)));
    // If this rank calls MPI_Init before the other one is gone, mpiexec ends it with its own message.
    if (outcome.errors.find("this process did not call \"init\" before exiting") != std::string::npos) continue;
    EXPECT_COMPLAINT(outcome, Exit::failed,
                     AllOf(HasSubstr(fmt::format("rank {} of 2 has waited 2 s for the others", 1 - other.rank)),
                           HasSubstr("start")));
  }
}

TEST_F(RanksFault, TheConnectTimeoutMustBeANumber) {
  // Rank 0 reports this, and is the last to start.
  for (const char* seconds : {"0", "soon", "5s"})
    EXPECT_COMPLAINT(run(under_mpirun(2, run_.train(),
                                      "export STRATA_CONNECT_SECONDS=" + std::string(seconds) +
                                          "; test $OMPI_COMM_WORLD_RANK = 0 && sleep 0.5; exec \"$@\"")),
                     Exit::usage, AllOf(HasSubstr("STRATA_CONNECT_SECONDS"), HasSubstr(seconds)));
}

TEST_F(RanksFault, AWrongCommandLineOnOneRankOrOnAll) {
  const auto complaint_of = [&](const std::string& command, const std::string& script) {
    auto words = run_.train();
    words[1] = command;
    const Outcome outcome = run(under_mpirun(2, words, script));
    EXPECT_COMPLAINT(outcome, Exit::usage, testing::_);
    return outcome.complaints().empty() ? "" : outcome.complaints()[0];
  };
  EXPECT_THAT(complaint_of("train", instead_of(1, "set -- \"$@\" --bogus")),
              AllOf(testing::StartsWith("rank 1: "), HasSubstr("--bogus"), HasSubstr("strata train --help")));
  EXPECT_THAT(complaint_of("train", "exec \"$@\" --bogus"), AllOf(Not(HasSubstr("rank")), HasSubstr("--bogus")));
  EXPECT_THAT(complaint_of("trian", "exec \"$@\""), AllOf(Not(HasSubstr("rank")), HasSubstr("no command trian")));
  EXPECT_THAT(complaint_of("train", instead_of(1, "exec " + kStrata + " trian")),
              AllOf(testing::StartsWith("rank 1: "), HasSubstr("no command trian")));
}

TEST_F(RanksFault, DifferentTokensUnderTheSameName) {
  run_.write_tokens("other/tokens.bin", 599);
  const std::string tokens = "/proc/self/cwd/tokens.bin";
  const auto matcher = [](const char* key) {
    return AllOf(HasSubstr(fmt::format("rank 1 sees a different /proc/self/cwd/tokens.bin ({}) than rank 0", key)),
                 HasSubstr("1198 bytes"), HasSubstr("not 1200 bytes"));
  };
  const Outcome trained = run(under_mpirun(2, run_.train({"data.train=" + tokens}), apart()));
  EXPECT_COMPLAINT(trained, Exit::failed, matcher("data.train"));
  EXPECT_THAT(trained.errors, Not(HasSubstr("step 1/")));
  EXPECT_COMPLAINT(run(under_mpirun(2, run_.command("eval", {"data.validation=" + tokens}), apart())), Exit::failed,
                   matcher("data.validation"));
}

TEST_F(RanksFault, DifferentWeightsUnderTheSameName) {
  const auto save = [&](const std::string& name, const char* seed) {
    const Outcome trained = run(run_.train({"training.max_steps=1", seed, "checkpoint.dir=" + run_.file("saved")}));
    EXPECT_EQ(trained.code, 0) << trained.all();
    EXPECT_EQ(run({kStrata, "export", run_.file("saved"), "-o", run_.file(name)}).code, 0);
    std::filesystem::remove_all(run_.file("saved"));
  };
  save("model", "training.seed=1");
  save("other/model", "training.seed=2");
  const auto matcher = AllOf(HasSubstr("rank 1 sees a different tensor "), HasSubstr("/proc/self/cwd/model"));
  for (const char* stage : {"zero.stage=0", "zero.stage=3"})
    EXPECT_COMPLAINT(run(under_mpirun(2, run_.train_stored("/proc/self/cwd/model", {stage}), apart())), Exit::failed,
                     matcher);
  EXPECT_COMPLAINT(run(under_mpirun(2,
                                    {kStrata, "generate", "--model", "/proc/self/cwd/model", "--prompt-tokens", "1,2",
                                     "--max-new-tokens", "4"},
                                    apart())),
                   Exit::failed, matcher);
}

TEST_F(RanksFault, DifferentGenerateOptionsOnOneRank) {
  const Outcome trained = run(run_.train({"training.max_steps=1", "checkpoint.dir=" + run_.file("saved")}));
  EXPECT_EQ(trained.code, 0) << trained.all();
  EXPECT_COMPLAINT(
      run(under_mpirun(
          2, {kStrata, "generate", "--model", run_.file("saved"), "--prompt-tokens", "1,2", "--max-new-tokens", "4"},
          instead_of(1, "set -- \"$@\" --seed 7"))),
      Exit::usage, HasSubstr("rank 1 was given a different prompt or other options"));
}

TEST_F(RanksFault, AnUnknownPartOfBenchIsReportedOnce) {
  EXPECT_COMPLAINT(run(under_mpirun(2, {kStrata, "bench", "NONSENSE"})), Exit::usage,
                   AllOf(HasSubstr("no benchmark NONSENSE"), Not(HasSubstr("rank"))));
}

// generate's last line describes all ranks, not only rank 0's threads.
TEST_F(RanksFault, GenerateReportsTheThreadsOfAllRanks) {
  EXPECT_EQ(run(run_.train({"training.max_steps=1", "checkpoint.dir=" + run_.file("saved")})).code, 0);
  const Outcome outcome = run(under_mpirun(2,
                                           {kStrata, "generate", "--model", run_.file("saved"), "--prompt-tokens",
                                            "1,2", "--max-new-tokens", "4", "--set", "device.threads=1"},
                                           instead_of(1, "set -- \"$@\" --set device.threads=2")));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr(", 1 to 2 threads per rank ("));
}

// The line about threads and cores describes all ranks, not only rank 0's.
TEST_F(RanksFault, TheStartDoesNotShowRankZerosCoresAsAll) {
  const Outcome outcome = run(under_mpirun(2, run_.train()));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr(" per rank ("), Not(HasSubstr("cores 0-"))));
}

}  // namespace
}  // namespace strata::tests

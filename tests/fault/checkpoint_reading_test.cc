// Reading checkpoints that are damaged, cannot be opened, or are being removed.
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "tests/dist/tiny_run.h"
#include "tests/refusing_system.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class CheckpointReading : public testing::Test {
 protected:
  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    more.push_back("checkpoint.dir=" + run_.file("checkpoints"));
    return run_.train(more);
  }
  TinyRun run_;
};

// Every command uses the checkpoint from which train resumes, and names the one that it skipped. Here the newest has a
// damaged moment, which eval, export and generate do not need.
TEST_F(CheckpointReading, EveryCommandUsesTheSameNewestCompleteCheckpoint) {
  ASSERT_EQ(run(train({"checkpoint.every=1"})).code, 0);
  const std::string newest = run_.file("checkpoints/step-00000003");
  std::fstream(newest + "/rank-00000-of-00001.safetensors", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(-2, std::ios::end)
      .write("\x7f\x7f", 2);
  const std::string folder = run_.file("checkpoints");
  const auto eval = run_.command("eval", {"data.validation=" + run_.file("tokens.bin"), "checkpoint.dir=" + folder});
  const std::vector<std::vector<std::string>> commands = {
      eval,
      under_mpirun(2, eval),
      run_.command("eval", {"data.validation=" + run_.file("tokens.bin"), "checkpoint.resume=" + folder}),
      {kStrata, "eval", "--set", "model.path=" + folder, "--set", "data.validation=" + run_.file("tokens.bin"), "--set",
       "data.seq_len=16"},
      {kStrata, "generate", "--model", folder, "--prompt-tokens", "1,2", "--max-new-tokens", "2"},
      under_mpirun(2, {kStrata, "generate", "--model", folder, "--prompt-tokens", "1,2", "--max-new-tokens", "2"}),
      {kStrata, "export", folder, "-o", run_.file("exported")},
      {kStrata, "inspect", folder},
      run_.train_stored(folder),
      train({"training.max_steps=4"}),
  };
  for (const auto& command : commands) {
    const Outcome outcome = run(command);
    SCOPED_TRACE(outcome.all());
    EXPECT_EQ(outcome.code, 0);
    const auto passed = outcome.complaints();
    EXPECT_EQ(std::count_if(passed.begin(), passed.end(),
                            [&](const std::string& line) {
                              return line.starts_with("passed over " + newest) &&
                                     line.find("expected checksum") != std::string::npos;
                            }),
              1);
    EXPECT_THAT(outcome.all(), HasSubstr("step-00000002"));
  }
}

// A file that cannot be opened is not damaged. With a few open files more or less, the run continues or ends. It never
// starts over, and existing checkpoints stay.
TEST_F(CheckpointReading, TooFewOpenFiles) {
  ASSERT_EQ(run(under_mpirun(4, train({"checkpoint.every=1", "training.max_steps=4"}))).code, 0);
  int ended = 0, went_on = 0;
  for (int files = 4; files <= 256; files += files < 32 ? 2 : 32) {
    std::vector<std::string> command = {"sh", "-c", fmt::format("ulimit -n {}; exec \"$@\"", files), "sh"};
    for (const std::string& word : train({"checkpoint.every=1", "training.max_steps=4"})) command.push_back(word);
    const Outcome outcome = run(command);
    ++(outcome.code == 0 ? went_on : ended);
    EXPECT_EQ(outcome.code == 0, outcome.errors.find("resumes after step 4") != std::string::npos) << outcome.all();
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("passed over"))) << files;
    for (const char* step : {"step-00000003", "step-00000004"})
      EXPECT_TRUE(fs::exists(run_.file("checkpoints") + "/" + step + "/manifest.json")) << files;
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(went_on, 0);
}

// If fsync reports a failure, nothing of the checkpoint is published.
TEST_F(CheckpointReading, FsyncFails) {
  Outcome outcome;
  with_failing({SYS_fsync}, EIO, [&] { outcome = run(train({"checkpoint.every=1"})); });
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::failed)) << outcome.all();
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("written to the disk"), HasSubstr("Input/output error")));
  for (const auto& entry : fs::directory_iterator(run_.file("checkpoints")))
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("lock", HasSubstr(".writing-")));
}

// A run writes newer checkpoints and removes older ones, but not while they are read.
TEST_F(CheckpointReading, CanBeReadDuringARun) {
  Running running(train({"training.max_steps=1000000", "checkpoint.every=1", "checkpoint.keep=1"}));
  ASSERT_TRUE(appears(run_.file("checkpoints/step-00000002")));
  for (int i = 0; i < 10; ++i) {
    const std::string to = run_.file(fmt::format("exported-{}", i));
    for (const auto& command : {std::vector<std::string>{kStrata, "export", run_.file("checkpoints"), "-o", to},
                                run_.command("eval", {"data.validation=" + run_.file("tokens.bin"),
                                                      "checkpoint.dir=" + run_.file("checkpoints")})}) {
      const Outcome outcome = run(command);
      EXPECT_EQ(outcome.code, 0) << outcome.all();
      EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("passed over")));
    }
  }
  running.send(SIGUSR1);
  EXPECT_EQ(running.wait().code, static_cast<int>(Exit::requeue));
}

}  // namespace
}  // namespace strata::tests

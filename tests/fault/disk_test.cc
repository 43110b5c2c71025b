// If a report cannot be written, rank 0 prints that, and no rank waits for it.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DiskFault : public testing::Test {
 protected:
  TinyRun run_;
};

TEST_F(DiskFault, FullDisk) {
  for (const char* key : {"report.jsonl", "report.summary", "report.trace"})
    EXPECT_COMPLAINT(run(run_.train({std::string(key) + "=/dev/full"})), Exit::does_not_fit,
                     AllOf(HasSubstr("/dev/full"), HasSubstr("No space left"), HasSubstr("free some space there")));
  auto plan = run_.command("plan");
  plan.insert(plan.end(), {"--json", "/dev/full"});
  EXPECT_COMPLAINT(run(plan), Exit::does_not_fit, AllOf(HasSubstr("/dev/full"), HasSubstr("No space left")));
}

// Redirects stdout or stderr of `command` to a full disk.
std::vector<std::string> onto_full_disk(const char* redirection, const std::vector<std::string>& command) {
  std::vector<std::string> all = {"sh", "-c", std::string("exec \"$@\" ") + redirection + "/dev/full", "sh"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

TEST_F(DiskFault, AFullStdoutIsAnError) {
  EXPECT_COMPLAINT(run(onto_full_disk(">", {kStrata, "inspect", run_.file("tokens.bin")})), Exit::failed,
                   HasSubstr("standard output cannot be written"));
  EXPECT_COMPLAINT(run(onto_full_disk(">", {kStrata, "keys"})), Exit::failed,
                   HasSubstr("standard output cannot be written"));
}

// The log's disk is full, but the program's work stays, and its exit code is that of its end.
TEST_F(DiskFault, StderrOnAFullDiskChangesNoExitCode) {
  const auto code_of = [](const std::vector<std::string>& command) {
    const Outcome outcome = run(onto_full_disk("2>", command));
    EXPECT_TRUE(outcome.in_time) << outcome.all();
    return static_cast<Exit>(outcome.code);
  };
  const std::string dir = "checkpoint.dir=" + run_.file("checkpoints");
  EXPECT_EQ(code_of(run_.train({dir, "checkpoint.stop_after=2"})), Exit::requeue);
  EXPECT_TRUE(std::filesystem::exists(run_.file("checkpoints/step-00000002/manifest.json")));
  EXPECT_EQ(code_of(run_.train({dir})), Exit::done);
  EXPECT_EQ(code_of(run_.train({dir, "training.max_step=3"})), Exit::usage);
  auto bogus = run_.train();
  bogus.emplace_back("--bogus");
  EXPECT_EQ(code_of(bogus), Exit::usage);
  EXPECT_EQ(code_of(run_.train({"memory.device=1B"})), Exit::does_not_fit);
  EXPECT_EQ(code_of(run_.command("plan", {"memory.device=1B"})), Exit::does_not_fit);
  run_.folder().write("empty.bin", "");
  EXPECT_EQ(code_of(run_.train({"data.train=" + run_.file("empty.bin")})), Exit::corrupt);
  EXPECT_EQ(code_of(run_.command("eval", {dir, "data.validation=" + run_.file("tokens.bin")})), Exit::done);
  EXPECT_EQ(code_of({kStrata, "generate", "--model", run_.file("checkpoints"), "--prompt-tokens", "1",
                     "--max-new-tokens", "4"}),
            Exit::done);
  EXPECT_EQ(code_of({kStrata, "export", run_.file("checkpoints"), "-o", run_.file("model")}), Exit::done);
  run_.folder().write("a.txt", "some text");
  EXPECT_EQ(code_of({kStrata, "tokenize", "--tokenizer", "byte", "-o", run_.file("a.bin"), run_.file("a.txt")}),
            Exit::done);
}

TEST_F(DiskFault, FullDiskInMidRunEndsAllRanks) {
  for (const char* transport : {"shared", "messages"})
    EXPECT_COMPLAINT(
        run(under_mpirun(3, run_.train({"report.jsonl=/dev/full", std::string("comm.transport=") + transport}))),
        Exit::does_not_fit, AllOf(HasSubstr("rank 0: "), HasSubstr("/dev/full"), HasSubstr("No space left")));
}

// A quota that is sufficient for some steps.
TEST_F(DiskFault, FileSizeLimit) {
  std::vector<std::string> command = {"sh", "-c", "ulimit -f 8; exec \"$@\"", "sh"};
  for (const std::string& word : run_.train({"training.max_steps=1000", "report.jsonl=" + run_.file("steps.jsonl")}))
    command.push_back(word);
  const Outcome outcome = run(command);
  EXPECT_COMPLAINT(outcome, Exit::does_not_fit,
                   AllOf(HasSubstr("steps.jsonl"), HasSubstr("File too large"), HasSubstr("ulimit -f")));
  EXPECT_THAT(run_.folder().read("steps.jsonl"), HasSubstr("\"step\":10,"));
}

TEST_F(DiskFault, MissingFolder) {
  EXPECT_COMPLAINT(run(under_mpirun(2, run_.train({"report.summary=" + run_.file("none/summary.json")}))), Exit::failed,
                   AllOf(HasSubstr("none/summary.json"), HasSubstr("there is no folder"), HasSubstr("create it")));
}

// Folders of the nvme tier, as strata bench io sees them.
TEST_F(DiskFault, OffloadFolders) {
  const auto bench = [](const std::string& folder, const std::string& size) {
    return run({kStrata, "bench", "io", "--dir", folder, "--size", size});
  };
  EXPECT_COMPLAINT(bench(run_.file("none"), "1MiB"), Exit::usage,
                   AllOf(HasSubstr(run_.file("none")), HasSubstr("does not exist")));
  EXPECT_COMPLAINT(bench("/dev/null", "1MiB"), Exit::usage, HasSubstr("/dev/null is not a folder"));
  EXPECT_COMPLAINT(bench(run_.folder().path().string(), "1000000GB"), Exit::does_not_fit,
                   AllOf(HasSubstr("1000000000622592 bytes"), HasSubstr("free there")));
  EXPECT_EQ(bench(run_.folder().path().string(), "2MiB").code, 0);
}

}  // namespace
}  // namespace strata::tests

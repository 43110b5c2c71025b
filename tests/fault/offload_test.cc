// Complete runs with the nvme tier: folders that cannot be used, are too small, or are used by another run; killed
// ranks; a system that forbids io_uring.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <simdjson.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "tests/dist/tiny_run.h"
#include "tests/offload/seccomp.h"

namespace strata::tests {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class OffloadFault : public testing::Test {
 protected:
  OffloadFault() { std::filesystem::create_directory(nvme()); }
  std::string nvme() const { return run_.file("nvme"); }
  std::vector<std::string> train(const std::string& folder, std::vector<std::string> sets = {}) const {
    sets.insert(sets.begin(), {"zero.stage=3", "zero.parameters=nvme", "zero.gradients=nvme", "zero.optimizer=nvme",
                               "memory.nvme=" + folder, "report.summary=" + run_.file("summary.json")});
    return run_.train(sets);
  }
  // Runs `command` with a new file system mounted on nvme(), visible to that command only.
  std::vector<std::string> mounted(const std::string& mount, const std::vector<std::string>& command) const {
    std::vector<std::string> all = {"unshare", "-m", "sh", "-c", mount + " || exit 99; exec \"$@\"", "sh"};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  std::string tmpfs(const char* size) const {
    return fmt::format("mount -t tmpfs -o size={} strata-test {}", size, nvme());
  }
  bool may_mount() const { return run(mounted(tmpfs("1m"), {"true"})).code == 0; }
  static bool steps(const std::string&, const std::string& errors) {
    return errors.find("step 3/") != std::string::npos;
  }
  std::string weights_hash() const {
    simdjson::dom::parser parser;
    return std::string(std::string_view(parser.load(run_.file("summary.json"))["weights_hash"]));
  }
  // The result of the same run in memory.
  std::string expected_hash() const {
    EXPECT_EQ(run(run_.train({"report.summary=" + run_.file("summary.json")})).code, 0);
    return weights_hash();
  }

  TinyRun run_;
};

TEST_F(OffloadFault, FoldersThatCannotBeUsed) {
  const struct {
    std::string folder;
    const char* words;
  } cases[] = {{run_.file("none"), "does not exist"},
               {run_.file("tokens.bin"), "is not a folder"},
               {"/proc", "cannot be written"}};
  for (const auto& [folder, words] : cases) {
    const auto said = AllOf(HasSubstr("offload folder " + folder), HasSubstr(words));
    EXPECT_COMPLAINT(run(train(folder)), Exit::usage, said);
    EXPECT_COMPLAINT(run(under_mpirun(2, train(folder))), Exit::usage, said);
  }
}

TEST_F(OffloadFault, TmpfsWorksAndIsReported) {
  if (!may_mount()) GTEST_SKIP() << "this process may not mount file systems";
  const std::string hash = expected_hash();
  const Outcome outcome = run(mounted(tmpfs("64m"), train(nvme())));
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("this folder is on tmpfs, which is memory"));
  EXPECT_EQ(weights_hash(), hash);
}

// The run is refused before the first step, with the number of missing bytes.
TEST_F(OffloadFault, TooLittleSpace) {
  if (!may_mount()) GTEST_SKIP() << "this process may not mount file systems";
  for (const int ranks : {1, 2}) {
    const auto command = train(nvme(), {"model.config.n_embd=128"});
    const Outcome outcome = run(mounted(tmpfs("1m"), ranks == 1 ? command : under_mpirun(ranks, command)));
    EXPECT_COMPLAINT(outcome, Exit::does_not_fit,
                     AllOf(HasSubstr("the swap file of rank "), ContainsRegex("needs [0-9]{7} bytes, and [0-9]+ are"),
                           HasSubstr(nvme())));
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("step 1/")));
  }
}

TEST_F(OffloadFault, TwoRunsInOneFolder) {
  const std::string hash = expected_hash();
  auto endless = train(nvme(), {"training.max_steps=1000000", "report.summary=" + run_.file("endless.json")});
  Running first(endless);
  ASSERT_TRUE(first.wait_until(steps));
  const Outcome second = run(under_mpirun(2, train(nvme(), {"training.global_batch_size=2"})));
  EXPECT_EQ(second.code, 0) << second.all();
  EXPECT_EQ(run(train(nvme())).code, 0);
  EXPECT_EQ(weights_hash(), hash);
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 1) << "stopped on request";
  EXPECT_TRUE(std::filesystem::is_empty(nvme()));
}

TEST_F(OffloadFault, AKilledRankLeavesNoFiles) {
  const std::string folder = run_.folder().path().string();
  const std::string script = "trap '' TERM; \"$@\" & echo $! >" + folder +
                             "/pid.$OMPI_COMM_WORLD_RANK; wait $!; code=$?; " + end_together(folder);
  Running running(under_mpirun(2, train(nvme(), {"training.max_steps=1000000"}), script));
  ASSERT_TRUE(running.wait_until(steps));
  const auto pid = [&](int rank) { return number_from(run_.file(fmt::format("pid.{}", rank))); };
  const auto start = std::chrono::steady_clock::now();
  kill(pid(1), SIGKILL);
  while (kill(pid(0), 0) == 0 && std::chrono::steady_clock::now() - start < 10s) std::this_thread::sleep_for(10ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  const Outcome outcome = running.wait();
  EXPECT_THAT(outcome.complaints(), testing::ElementsAre(HasSubstr("rank 1 (pid"))) << outcome.all();
  EXPECT_TRUE(std::filesystem::is_empty(nvme()));
}

// As in a container with Docker's default filter, the run takes the next mode, says why, and has the same bits.
TEST_F(OffloadFault, IoUringForbidden) {
  const std::string hash = expected_hash(), said = run_.file("said");
  std::vector<std::string> command = train(nvme());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int file = open(said.c_str(), O_WRONLY | O_CREAT, 0600);
    if (file < 0 || dup2(file, STDERR_FILENO) < 0 || !offload::forbid({SYS_io_uring_setup}, EPERM)) _exit(98);
    execv(argv[0], argv.data());
    _exit(97);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const std::string errors = run_.folder().read("said");
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << errors;
  EXPECT_THAT(errors, ContainsRegex("nvme tier in .*: (libaio|threads).*not used: .*io_uring"));
  EXPECT_EQ(weights_hash(), hash);
}

}  // namespace
}  // namespace strata::tests

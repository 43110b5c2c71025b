// If the system refuses a thread, on whichever rank, the result is one sentence instead of an abort.
#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The address space has room for a few stacks, but not for 256.
constexpr const char* kLimit = "ulimit -s 65536; ulimit -v 6000000; ";

class ThreadsFault : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer reserves more addresses than any limit allows";
#endif
  }
  TinyRun run_;
};

TEST_F(ThreadsFault, NamesTheLimitToRaise) {
  std::vector<std::string> command = {"sh", "-c", std::string(kLimit) + "exec \"$@\"", "sh"};
  for (const std::string& word : run_.train({"device.threads=256"})) command.push_back(word);
  EXPECT_COMPLAINT(run(command), Exit::failed,
                   AllOf(HasSubstr("the system refused to start thread "), HasSubstr("of a lane's 256"),
                         HasSubstr("device.threads"), HasSubstr("ulimit -u")));
}

TEST_F(ThreadsFault, OtherRanksAreToldOfARefusedThread) {
  const Outcome outcome =
      run(under_mpirun(2, run_.train({"device.threads=256"}),
                       std::string("test $OMPI_COMM_WORLD_RANK != 1 || { ") + kLimit + "}; exec \"$@\""));
  EXPECT_COMPLAINT(
      outcome, Exit::failed,
      AllOf(HasSubstr("rank 1"), HasSubstr("the system refused to start thread "), HasSubstr("ulimit -u")));
}

// gRPC itself would abort or wait forever without its threads and descriptors.
TEST_F(ThreadsFault, NamesRefusedThreadsOfTheControlService) {
  const auto limited = [&](const std::string& limit) {
    std::vector<std::string> command = {"sh", "-c", limit + "; exec \"$@\"", "sh"};
    for (const std::string& word : run_.train({"control.listen=unix:" + run_.file("socket")})) command.push_back(word);
    return run(command, 60);
  };
  for (int most = 4; most < 40; most += 3) {
    SCOPED_TRACE(most);
    const Outcome outcome = limited("ulimit -n " + std::to_string(most));
    // The loader, MPI or the run itself may be refused first. None of them aborts or hangs.
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1 || outcome.code == 2 || outcome.code == 127) << outcome.all();
    if (most == 19)
      EXPECT_COMPLAINT(outcome, Exit::failed,
                       AllOf(HasSubstr("open a file for the control service"), HasSubstr("ulimit -n")));
  }
}

}  // namespace
}  // namespace strata::tests

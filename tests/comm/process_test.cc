#include "comm/process.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/error.h"
#include "base/host/host.h"
#include "tests/refusing_system.h"

namespace strata::comm {
namespace {

TEST(Process, CountsAsEndedBeforeItIsReaped) {
  EXPECT_TRUE(Process::self(0).alive());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Process self = Process::self(1);
    if (write(ready[1], &self, sizeof self) < 0) _exit(1);
    for (;;) pause();
  }
  Process process{};
  ASSERT_EQ(read(ready[0], &process, sizeof process), static_cast<ssize_t>(sizeof process));
  EXPECT_EQ(process.pid, child);
  EXPECT_TRUE(process.alive());
  Process successor = process;  // another process with the same PID
  ++successor.start_time;
  EXPECT_FALSE(successor.alive());
  kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(process.alive());
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(process.alive());
  EXPECT_EQ(process.death_message().find(fmt::format("rank 1 (pid {} on {}) ended", process.pid, host_name())), 0u);
  close(ready[0]);
  close(ready[1]);
}

TEST(NodeClaim, TheFirstProcessTakesIt) {
  const std::string name = fmt::format("strata-test-{}", getpid());
  {
    NodeClaim claim(name), other(name + "0"), late(name);
    EXPECT_TRUE(claim.take());
    EXPECT_FALSE(late.take());
    EXPECT_TRUE(other.take()) << "another name";
    const pid_t child = fork();
    if (child == 0) _exit(NodeClaim(name).take() ? 1 : 0);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(NodeClaim(name).take()) << "its holder has ended";
}

// Printing twice is better than not at all.
TEST(NodeClaim, IsGrantedIfTheSystemRefusesSockets) {
  NodeClaim claim("strata-test");
  for (const long call : {SYS_socket, SYS_bind})
    tests::with_failing({call}, EACCES, [&] { EXPECT_TRUE(claim.take()); });
}

}  // namespace
}  // namespace strata::comm

#include "launcher/launch/ranks/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "tests/failure.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProgramResult shell(const std::string& text, double seconds = 20) {
  return run_program({{"sh", "-c", text}}, seconds);
}

TEST(Child, DeliversLinesAndTheEnd) {
  const ProgramResult result = shell("echo a; echo b >&2; printf c; exit 3");
  EXPECT_EQ(result.out, "a\nc\n");
  EXPECT_EQ(result.errors, "b\n");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(shell("kill -TERM $$").code, 128 + SIGTERM);
}

// mpirun is in this situation when somebody ends all processes at once.
TEST(Child, CanIgnoreSigterm) {
  const std::vector<std::string> words = {"sh", "-c", "kill -TERM $$; echo on"};
  EXPECT_EQ(run_program({words}, 20).code, 128 + SIGTERM);
  const ProgramResult result = run_program({words, {}, false, true}, 20);
  EXPECT_EQ(result.out, "on\n");
  EXPECT_EQ(result.code, 0);
}

TEST(Child, EnvironmentOverridesInheritedVariables) {
  setenv("STRATA_TEST_CHILD", "before", 1);
  const ProgramResult result =
      run_program({{"sh", "-c", "env | grep STRATA_TEST_CHILD"}, {"STRATA_TEST_CHILD=after"}}, 20);
  EXPECT_EQ(result.out, "STRATA_TEST_CHILD=after\n");
  unsetenv("STRATA_TEST_CHILD");
}

TEST(Child, KillsItselfAndItsChildrenAtTheTimeLimit) {
  const auto start = std::chrono::steady_clock::now();
  const ProgramResult result = shell("sleep 60 & echo $!; sleep 60", 2);
  EXPECT_EQ(result.code, std::nullopt);
  const int grandchild = std::stoi(result.out);
  // True if it is gone, or dead and not yet reaped by the process that inherited it.
  const auto alive = [&] {
    return shell("grep -q '^State:.[^Z]' /proc/" + std::to_string(grandchild) + "/status").code == 0;
  };
  while (alive() && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) usleep(10000);
  EXPECT_FALSE(alive());
}

TEST(Child, NamesAMissingProgram) {
  EXPECT_FAILURE(run_program({{"no-such-program-of-strata"}}, 5), Exit::failed, HasSubstr("no-such-program-of-strata"));
}

TEST(Child, ReceivesInput) {
  std::vector<std::string> lines;
  Child child(
      {{"sh", "-c", "read x; echo got $x"}, {}, true}, [&](std::string_view line) { lines.emplace_back(line); },
      [](std::string_view) {});
  EXPECT_TRUE(child.write_line("word"));
  while (!child.is_over()) {
    LineReader* readers[] = {&child.out(), &child.errors()};
    read_lines(readers, 20);
  }
  EXPECT_THAT(lines, ElementsAre("got word"));
}

// This process passes on a Ctrl-C from the terminal itself.
TEST(Child, HasAProcessGroupOfItsOwn) {
  EXPECT_EQ(shell("test $(ps -o pgid= -p $$) = $$ && echo own").out, "own\n");
}

}  // namespace
}  // namespace strata::launcher

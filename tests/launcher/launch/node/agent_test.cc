#include "launcher/launch/node/agent.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <iterator>

#include "launcher/launch/ranks/child.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

// Processes of a launch are recognised by their environment, whatever their names. Other processes are not touched.
TEST(EndRanks, EndsOnlyRanksOfItsRun) {
  const auto nothing = [](std::string_view) {};
  Child ours({{"sleep", "60"}, {"STRATA_LAUNCH=a-run-of-this-test"}}, nothing, nothing);
  Child others({{"sleep", "60"}, {"STRATA_LAUNCH=a-run-of-this-test-too"}}, nothing, nothing);
  // A process has its new environment only once it runs its program.
  for (int tries = 0; tries < 500 && !ours.exit_code(); ++tries) {
    EXPECT_TRUE(end_ranks("a-run-of-this-test", 20).empty());
    usleep(10000);
  }
  EXPECT_EQ(ours.exit_code(), 128 + SIGKILL);
  EXPECT_EQ(others.exit_code(), std::nullopt);
  EXPECT_TRUE(end_ranks("", 0).empty());
}

// A lost node is back. Its earlier agent would mistake the ranks of the next start for its own.
TEST(EndOlderAgents, EndsOnlyAgentsOfThisRunAndNode) {
  const tests::ScratchFolder folder;
  folder.write("node-agent", "echo begun; read nothing\n");
  std::size_t begun = 0;
  const auto count = [&](std::string_view) { ++begun; };
  const auto nothing = [](std::string_view) {};
  // A script of that name, given as the first argument of a program.
  const std::string path = folder.path().string() + ":" + std::getenv("PATH");
  const auto agent = [&](std::vector<std::string> words) { return Program{std::move(words), {"PATH=" + path}, true}; };
  Child older(agent({"bash", "node-agent", "--run", "r", "--host", "n1", "--timeout", "4"}), count, nothing);
  Child other_node(agent({"bash", "node-agent", "--run", "r", "--host", "n10"}), count, nothing);
  Child other_run(agent({"bash", "node-agent", "--run", "rr", "--host", "n1"}), count, nothing);
  Child starter(agent({"bash", "-c", "echo begun; read x", "node-agent", "--run", "r", "--host", "n1"}), count,
                nothing);
  Child* const all[] = {&older, &other_node, &other_run, &starter};
  std::vector<LineReader*> readers;
  for (Child* child : all) readers.push_back(&child->out());
  for (int tries = 0; tries < 500 && begun < std::size(all); ++tries) read_lines(readers, 100);
  ASSERT_EQ(begun, std::size(all));
  end_older_agents("r", "n1");
  for (int tries = 0; tries < 500 && !older.exit_code(); ++tries) usleep(10000);
  EXPECT_EQ(older.exit_code(), 128 + SIGKILL);
  for (Child* child : {&other_node, &other_run, &starter}) EXPECT_EQ(child->exit_code(), std::nullopt);
}

// A rank ends while one of its threads waits for a drive. Its first thread then shows nothing about the process.
TEST(EndRanks, FindsARankWhoseFirstThreadHasEnded) {
  if (find_program("python3").empty()) GTEST_SKIP() << "python3 is not installed";
  const auto nothing = [](std::string_view) {};
  bool begun = false;
  Child ours(
      {{"python3", "-c",
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('begun', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)"},
       {"STRATA_LAUNCH=a-run-of-threads"}},
      [&](std::string_view) { begun = true; }, nothing);
  LineReader* readers[] = {&ours.out(), &ours.errors()};
  for (int tries = 0; tries < 500 && !begun; ++tries) read_lines(readers, 100);
  ASSERT_TRUE(begun);
  usleep(300'000);
  EXPECT_EQ(ours.exit_code(), std::nullopt);
  EXPECT_TRUE(end_ranks("a-run-of-threads", 20).empty());
  for (int tries = 0; tries < 500 && !ours.exit_code(); ++tries) usleep(10000);
  EXPECT_EQ(ours.exit_code(), 128 + SIGKILL);
}

}  // namespace
}  // namespace strata::launcher

// Runs that are monitored and controlled from the command line have the same bits as others.
#include <gmock/gmock.h>
#include <simdjson.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kOff = {"control.listen=off", "control.timeout=0", "control.warn_after=0",
                                       "control.stuck_after=0"};

class ControlDist : public testing::Test {
 protected:
  // A run that is long enough for a test to connect to it on any machine.
  std::vector<std::string> long_run(std::vector<std::string> sets = {}) const {
    sets.insert(sets.begin(), {"training.max_steps=1000000", "checkpoint.dir=" + run_.file("ck"),
                               "control.listen=unix:" + run_.file("s"), "device.threads=1",
                               "report.every=500"});  // the output is not read while a test sends requests
    return run_.train(sets);
  }
  std::vector<std::string> ctl(const std::string& what, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out = {kStrata, "ctl", what, run_.file("ck")};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  static bool steps(Running& running) {
    return running.wait_until([](const auto&, const auto& errors) { return errors.find("step 500/") != errors.npos; });
  }
  // The process ID of a rank, as the run reports it. On a busy machine a rank may not answer the first request.
  pid_t pid_of(int rank) const {
    for (int asked = 0; asked < 10; ++asked) {
      const Outcome dump = run(ctl("dump", {"--json"}));
      simdjson::dom::parser parser;
      simdjson::dom::element root;
      if (parser.parse(dump.output).get(root) != simdjson::SUCCESS) continue;
      for (const auto told : root["ranks"].get_array())
        if (told["rank"].get_int64() == rank) return static_cast<pid_t>(told["pid"].get_int64().value());
    }
    return -1;
  }
  static std::string hash_in(const std::string& summary) {
    const std::size_t at = summary.find("\"weights_hash\"");
    return at == summary.npos ? "none" : summary.substr(at, 60);
  }
  static std::string losses_in(const std::string& jsonl) {
    std::string out;
    for (std::size_t at = 0; (at = jsonl.find("\"loss\":", at)) != jsonl.npos; ++at)
      out += jsonl.substr(at, jsonl.find(',', at) - at);
    return out;
  }
  template <typename F>
  static bool comes(const F& f) {
    for (int polls = 0; polls < 600; ++polls) {
      if (f()) return true;
      std::this_thread::sleep_for(100ms);
    }
    return false;
  }
  TinyRun run_;
};

TEST_F(ControlDist, ReportsItsStatusAndPlanAsTextAndJson) {
  Running running(long_run());
  ASSERT_TRUE(steps(running));
  EXPECT_COMPLAINT(run(ctl("status", {"--now"})), Exit::usage, HasSubstr("ctl status does not take --now"));
  const Outcome status = run(ctl("status"));
  EXPECT_EQ(status.code, 0) << status.all();
  EXPECT_THAT(status.output, AllOf(HasSubstr("training, gpt2"), HasSubstr("/1000000  loss "), HasSubstr("rank 0 on "),
                                   HasSubstr("memory of a rank: RAM for the model ")));
  simdjson::dom::parser parser;
  const simdjson::dom::element json = parser.parse(run(ctl("status", {"--json"})).output);
  EXPECT_GT(std::stoll(std::string(json["step"].get_string().value())), 4);
  EXPECT_THAT(run(ctl("plan")).output,
              AllOf(HasSubstr("ZeRO-0 over 1 rank"), HasSubstr("training.max_steps = 1000000")));
  EXPECT_THAT(run(ctl("dump")).output, AllOf(HasSubstr("rank 0 on "), HasSubstr("Executor::step")));
  const Outcome place = run({"cat", run_.file("ck/control.json")});
  EXPECT_THAT(place.output, HasSubstr(run_.file("s")));
  running.send(SIGTERM);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("\nstrata: control   unix:" + run_.file("s") + "\n"));
  EXPECT_THAT(run({"ls", run_.file("ck")}).output, Not(HasSubstr("control.json")));
  EXPECT_THAT(run(ctl("status")).errors, HasSubstr("control.json does not exist"));
}

// A status with finished steps shows all ranks of rank 0's node in their steps, however new the training is.
TEST_F(ControlDist, ShowsWhereRanksAreNow) {
  Running running(under_mpirun(2, long_run()));
  std::string first;  // the first status with a finished step
  EXPECT_TRUE(comes([&] {
    for (int asked = 0; asked < 10 && first.empty(); ++asked) {
      const Outcome status = run(ctl("status"));
      if (status.output.find("  loss ") != std::string::npos) first = status.output;
    }
    return !first.empty();
  }));
  EXPECT_THAT(first, AllOf(HasSubstr("rank 0 on "), HasSubstr("rank 1 on "), Not(HasSubstr("'starting'")),
                           Not(HasSubstr("'planning'")), Not(HasSubstr("'loading weights'"))));
  EXPECT_EQ(run(ctl("stop")).code, 0);
  EXPECT_EQ(running.wait().code, static_cast<int>(Exit::requeue));
}

TEST_F(ControlDist, WritesACheckpointWhenAskedAndStopsWithOneOrWithout) {
  {
    Running running(long_run());
    ASSERT_TRUE(steps(running));
    const Outcome saved = run(ctl("checkpoint"));
    EXPECT_EQ(saved.code, 0) << saved.all();
    EXPECT_THAT(saved.output, HasSubstr("is durable: " + run_.file("ck") + "/step-"));
    const Outcome stopped = run(ctl("stop"));
    EXPECT_THAT(stopped.output, HasSubstr("with a checkpoint")) << stopped.all();
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
    EXPECT_THAT(outcome.errors, HasSubstr("its checkpoint is written"));
  }
  Running running(long_run({"checkpoint.resume=none"}));
  ASSERT_TRUE(steps(running));
  EXPECT_THAT(run(ctl("stop", {"--now"})).output, HasSubstr("without a checkpoint"));
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("without a checkpoint, as requested: this run has written none"));
}

// The run may end between two calls, or during one.
TEST_F(ControlDist, TopIntoAPipeEndsWithTheRun) {
  Running running(long_run());
  ASSERT_TRUE(steps(running));
  Running top({kStrata, "top", run_.file("ck")});
  ASSERT_TRUE(top.wait_until([](const auto& output, const auto&) { return output.find("step ") != output.npos; }));
  EXPECT_EQ(run(ctl("stop")).code, 0);
  const Outcome stopped = running.wait();
  EXPECT_EQ(stopped.code, static_cast<int>(Exit::requeue));
  const Outcome outcome = top.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_EQ(outcome.errors, "");
  const std::string after = "stopped on request after step ";
  const int last = std::stoi(stopped.errors.substr(stopped.errors.rfind(after) + after.size()));
  const std::string line = outcome.output.substr(outcome.output.rfind("step "));
  EXPECT_THAT(line, testing::StartsWith("step " + std::to_string(last) + "/"));
}

TEST_F(ControlDist, StopsWithinAnEvaluation) {
  run_.write_tokens("validation.bin", 4'000'000);
  Running running(long_run(
      {"data.validation=" + run_.file("validation.bin"), "evaluation.at_start=true", "evaluation.every=1000"}));
  ASSERT_TRUE(comes([&] { return run(ctl("status")).output.find("evaluating") != std::string::npos; }));
  EXPECT_EQ(run(ctl("stop", {"--now"})).code, 0);
  const Outcome outcome = running.wait(120);
  EXPECT_EQ(outcome.code, static_cast<int>(Exit::requeue)) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("stopped on request after step 0, without a checkpoint, as requested"));
}

// A run on another machine is asked there. The machine's name in control.json is never taken for an option of ssh.
TEST_F(ControlDist, ConnectsOnlyToTheRunsMachine) {
  const auto ssh = run_.folder().write("bin/ssh", "#!/bin/sh\nprintf '<%s>' \"$@\"\n");
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  const auto asked = [&](const std::string& host) {
    run_.folder().write("far/control.json", "{\"host\": \"" + host +
                                                "\", \"pid\": 1, \"socket\": \"/s\", "
                                                "\"address\": \"\", \"tls\": false}");
    return run(
        {"env", "PATH=" + ssh.parent_path().string() + ":/usr/bin:/bin", kStrata, "ctl", "status", run_.file("far")});
  };
  EXPECT_THAT(asked("n2").output, HasSubstr("<-o><BatchMode=yes><--><n2><p="));
  const Outcome option = asked("-oProxyCommand=x");
  EXPECT_NE(option.code, 0);
  EXPECT_EQ(option.output, "") << "ssh is not started";
  EXPECT_THAT(option.errors, HasSubstr("its host is not a name"));
}

TEST_F(ControlDist, SameBitsWithAndWithoutClients) {
  const auto train = [&](const std::string& name, std::vector<std::string> sets) {
    sets.insert(sets.end(),
                {"training.max_steps=400", "device.threads=1", "report.summary=" + run_.file(name + ".json"),
                 "report.jsonl=" + run_.file(name + ".jsonl"), "checkpoint.dir=" + run_.file(name)});
    return under_mpirun(2, run_.train(sets));
  };
  const Outcome off = run(train("off", kOff), 120);
  ASSERT_EQ(off.code, 0) << off.all();
  std::atomic<bool> over{false};
  std::atomic<int> answered{0};
  Running running(train("on", {"control.listen=unix:" + run_.file("s"), "control.metrics=127.0.0.1:0"}));
  std::vector<std::jthread> clients;
  for (const char* what : {"status", "watch", "checkpoint", "dump"})
    clients.emplace_back([&, what] {
      while (!over.load())
        if (run({kStrata, "ctl", what, "unix:" + run_.file("s")}).code == 0) ++answered;
    });
  const Outcome on = running.wait(120);
  over.store(true);
  clients.clear();
  ASSERT_EQ(on.code, 0) << on.all();
  EXPECT_GT(answered.load(), 0);
  EXPECT_EQ(hash_in(run_.folder().read("on.json")), hash_in(run_.folder().read("off.json")));
  EXPECT_NE(hash_in(run_.folder().read("on.json")), "none");
  EXPECT_EQ(losses_in(run_.folder().read("on.jsonl")), losses_in(run_.folder().read("off.jsonl")));
}

TEST_F(ControlDist, NamesAStalledRankAndContinuesWithIt) {
  Running running(under_mpirun(3, long_run({"control.warn_after=6", "control.stuck_after=0"})));
  ASSERT_TRUE(steps(running));
  const pid_t pid = pid_of(2);
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(running.wait_until([](const auto&, const auto& errors) {
    return errors.find("rank 2 on ") != errors.npos &&
           errors.find("(its process does not run); 2 ranks wait for it") != errors.npos;
  }));
  EXPECT_EQ(run(ctl("status")).code, 0) << "rank 0 answers";
  kill(pid, SIGCONT);
  EXPECT_TRUE(running.wait_until([](const auto&, const auto& errors) {
    return errors.find("rank 2 on ", errors.find(" continues: ") - 40) != errors.npos;
  }));
  EXPECT_EQ(run(ctl("stop")).code, 0);
  EXPECT_EQ(running.wait().code, static_cast<int>(Exit::requeue));
}

TEST_F(ControlDist, EndsAStuckRunAndWritesTheStateOfAllRanks) {
  Running running(under_mpirun(2, long_run({"control.warn_after=5", "control.stuck_after=7"})));
  ASSERT_TRUE(steps(running));
  const pid_t pid = pid_of(1);
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(running.wait_until([](const auto&, const auto& errors) {
    return errors.find("the run ends, and the state of all ranks is in ") != errors.npos;
  }));
  kill(pid, SIGCONT);
  EXPECT_EQ(running.wait().code, static_cast<int>(Exit::failed));
  const std::string state = run({"sh", "-c", "cat " + run_.file("ck") + "/state-of-ranks-*.txt"}).output;
  EXPECT_THAT(state, AllOf(HasSubstr("rank 1 on "), HasSubstr("(its process does not run); one rank waits for it"),
                           HasSubstr("T, "), HasSubstr("Executor::step")));
}

TEST_F(ControlDist, EndsWithoutRank0) {
  Running running(under_mpirun(2, long_run({"control.timeout=6"})));
  ASSERT_TRUE(steps(running));
  const pid_t pid = pid_of(0);
  ASSERT_GT(pid, 0);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(running.wait_until([](const auto&, const auto& errors) {
    return errors.find("has stalled: its process has not run for ") != errors.npos;
  }));
  kill(pid, SIGCONT);
  EXPECT_EQ(running.wait().code, static_cast<int>(Exit::failed));
}

TEST_F(ControlDist, RefusesImpossibleSettingsBeforeTheStart) {
  run_.folder().write("s", "");
  EXPECT_COMPLAINT(run(long_run()), Exit::usage, HasSubstr("exists already"));
  EXPECT_COMPLAINT(run(under_mpirun(2, long_run())), Exit::usage, HasSubstr("exists already"));
  EXPECT_COMPLAINT(run(long_run({"control.listen=0.0.0.0:0"})), Exit::usage, HasSubstr("lets other machines control"));
  EXPECT_COMPLAINT(run(long_run({"control.listen=127.0.0.1:0", "control.metrics=0.0.0.0:0"})), Exit::usage,
                   HasSubstr("control.metrics_public"));
  const auto token = run_.folder().write("token", "0123456789abcdef0123456789abcdef");
  chmod(token.c_str(), 0644);
  EXPECT_COMPLAINT(run(long_run({"control.listen=127.0.0.1:0", "control.token_file=" + token.string()})), Exit::usage,
                   HasSubstr("others can read"));
  EXPECT_THAT(run({"ls", run_.folder().path().string()}).output, Not(HasSubstr("ck")));
}

}  // namespace
}  // namespace strata::tests

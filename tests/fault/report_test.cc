// Runs are stopped, killed and restarted in one folder. The reports describe a single run.
#include <gmock/gmock.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <sstream>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

constexpr int kSteps = 16;

class ReportFault : public testing::Test {
 protected:
  ReportFault() { run_.write_tokens("validation.bin", 64); }

  std::vector<std::string> train(const std::string& folder, std::vector<std::string> sets) const {
    for (const std::string& set :
         {fmt::format("training.max_steps={}", kSteps), std::string("training.global_batch_size=16"),
          std::string("device.threads=1"), "data.validation=" + run_.file("validation.bin"),
          "checkpoint.dir=" + run_.file(folder + "/checkpoints"), "report.dir=" + run_.file(folder + "/reports")})
      sets.push_back(set);
    return run_.train(sets);
  }
  std::string report(const std::string& folder, const std::string& name) const {
    return run_.folder().read(folder + "/reports/" + name);
  }

  // All lines of the reports, in order, without values that depend on the clock.
  std::vector<std::string> told(const std::string& folder) const {
    std::vector<std::string> out;
    simdjson::dom::parser parser;
    std::istringstream lines(report(folder, "report.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      simdjson::dom::object object;
      if (parser.parse(line).get(object) != simdjson::SUCCESS) return {"no JSON: " + line};
      std::string text;
      for (const auto field : object)
        if (field.key != "time" && field.key != "step_ms" && !field.key.ends_with("tokens_per_s"))
          text += fmt::format("{}={} ", field.key, simdjson::minify(field.value));
      out.push_back(text);
    }
    std::istringstream rows(report(folder, "report.csv"));
    for (std::string row; std::getline(rows, row);) {
      std::istringstream cells(row);
      std::string text;
      for (int column = 0; std::getline(cells, row, ','); ++column)
        if (column != 1 && column != 10 && column != 11) text += row + ",";  // time, step_ms, tokens_per_s
      out.push_back(text);
    }
    return out;
  }
  // The number of steps that the reports contain.
  int steps_done(const std::string& folder) const {
    const std::string lines = report(folder, "report.jsonl");
    const std::size_t last = lines.rfind("{\"step\":");
    return last == lines.npos ? 0 : std::stoi(lines.substr(last + 8));
  }
  std::string hash(const std::string& folder) const {
    simdjson::dom::parser parser;
    return std::string(parser.load(run_.file(folder + "/reports/summary.json"))["weights_hash"].get_string().value());
  }

  TinyRun run_;
};

// The reports and bits are those of an undisturbed run: each step and each evaluation once.
TEST_F(ReportFault, StopsAndKillsInAnyOrderLeaveTheReportsOfOneRun) {
  const char* asked = std::getenv("STRATA_SEQUENCES");
  const int sequences = asked ? std::atoi(asked) : 8;
  int killed = 0, stopped = 0;
  for (int seed = 0; seed < sequences; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](unsigned n) { return random() % n; };
    const std::vector<std::string> sets = {
        fmt::format("evaluation.every={}", 1 + below(3)), fmt::format("evaluation.at_start={}", below(2) == 0),
        fmt::format("checkpoint.every={}", below(4)), fmt::format("checkpoint.keep_best={}", below(2) == 0)};
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, fmt::join(sets, " ")));
    const std::string whole = fmt::format("whole-{}", seed), torn = fmt::format("torn-{}", seed);
    ASSERT_EQ(run(train(whole, sets)).code, 0);
    bool goes_on = true;
    for (int disturbed = 0; goes_on && disturbed < 6; ++disturbed) {
      // The run ends at a later step, or before it, in the evaluation that a stop had left due. The exact moment
      // depends on the machine, but the reports do not.
      const int step = steps_done(torn) + static_cast<int>(below(2) == 0 ? 0 : 1 + below(3));
      const std::string evaluated = fmt::format("evaluation after step {}:", step);
      const std::string reached = fmt::format("step {}/", step + static_cast<int>(below(2)));
      const unsigned kind = below(3);
      std::vector<std::string> more = sets;
      if (kind == 0) more.push_back(fmt::format("checkpoint.stop_after={}", step + 1));
      Running running(train(torn, more));
      if (kind > 0) {
        running.wait_until([&](const auto&, const std::string& errors) {
          return errors.find(evaluated) != errors.npos || errors.find(reached) != errors.npos;
        });
        if (below(2) == 0) usleep(static_cast<useconds_t>(below(5000)));
        running.send(kind == 1 ? SIGTERM : SIGKILL);
      }
      const Outcome outcome = running.wait();
      killed += outcome.signal == SIGKILL;
      stopped += outcome.code == static_cast<int>(Exit::requeue);
      goes_on = outcome.signal == SIGKILL || outcome.code == static_cast<int>(Exit::requeue);
      EXPECT_TRUE(goes_on || outcome.code == 0) << outcome.all();
    }
    const Outcome last = run(train(torn, sets));
    ASSERT_EQ(last.code, 0) << last.all();
    EXPECT_EQ(told(torn), told(whole));
    EXPECT_EQ(hash(torn), hash(whole));
  }
  EXPECT_GT(killed, 0);
  EXPECT_GT(stopped, 0);
}

}  // namespace
}  // namespace strata::tests

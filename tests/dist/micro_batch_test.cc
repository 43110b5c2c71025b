// training.micro_batch_size = auto under a real mpirun gives one number for all commands. It is stored in the
// checkpoint and kept by runs that resume from it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using simdjson::dom::element;
using testing::AllOf;
using testing::HasSubstr;

class AutomaticBatch : public testing::Test {
 protected:
  // The device memory that a plan of two ranks needs with micro-batches of `size`.
  std::uint64_t limit_for(int size) {
    auto command = run_.command("plan", {fmt::format("training.micro_batch_size={}", size), kBatch});
    command.insert(command.end(), {"--ranks", "2", "--json", run_.file("plan.json")});
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    return parser_.load(run_.file("plan.json"))["memory"]["device"]["planned_peak_bytes"];
  }
  std::vector<std::string> automatic(std::uint64_t limit, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"training.micro_batch_size=auto", kBatch, fmt::format("memory.device={}", limit)});
    return more;
  }
  std::vector<std::string> losses(const std::string& file) {
    std::vector<std::string> out;
    for (const element line : parser_.load_many(run_.file(file))) out.emplace_back(std::string_view(line["loss_hex"]));
    return out;
  }

  static constexpr const char* kBatch = "training.global_batch_size=48";
  TinyRun run_;
  simdjson::dom::parser parser_;
};

TEST_F(AutomaticBatch, AllCommandsAndResumedRunsUseOneNumber) {
  const std::uint64_t limit = limit_for(3);  // of 24, 12, 8, 6, 4, 3, 2 or 1
  const auto resolved = HasSubstr("training.micro_batch_size = auto: 3, the largest that fits memory.device");
  const std::string checkpoints = "checkpoint.dir=" + run_.file("checkpoints");

  const Outcome plan = run(run_.command("plan", automatic(limit)));
  EXPECT_THAT(plan.errors, testing::Not(resolved)) << "on one rank a part has 48 sequences";
  const Outcome first = run(under_mpirun(2, run_.train(automatic(limit, {"checkpoint.stop_after=2", checkpoints,
                                                                         "report.jsonl=" + run_.file("a.jsonl")}))));
  EXPECT_EQ(first.code, 75) << first.all();
  EXPECT_THAT(first.errors, resolved);
  EXPECT_THAT(first.errors, HasSubstr("8 micro-batches of 3 per rank"));

  // With one rank and four times the memory, the number stays the same, and so do the bits.
  const Outcome eval =
      run(run_.command("eval", automatic(4 * limit, {checkpoints, "data.validation=" + run_.file("tokens.bin")})));
  EXPECT_THAT(eval.errors, AllOf(HasSubstr("auto: 3, as in "), HasSubstr("step-00000002")));
  const Outcome second = run(run_.train(automatic(4 * limit, {checkpoints, "report.jsonl=" + run_.file("b.jsonl")})));
  EXPECT_EQ(second.code, 0) << second.all();
  EXPECT_THAT(second.errors, AllOf(HasSubstr("auto: 3, as "), HasSubstr("16 micro-batches of 3 per rank")));

  const Outcome given =
      run(run_.train({"training.micro_batch_size=3", kBatch, "report.jsonl=" + run_.file("c.jsonl")}));
  EXPECT_EQ(given.code, 0) << given.all();
  const auto a = losses("a.jsonl"), b = losses("b.jsonl"), c = losses("c.jsonl");
  ASSERT_EQ(c.size(), 3u);
  EXPECT_EQ(a, (std::vector{c[0], c[1]}));
  EXPECT_EQ(b, std::vector{c[2]});
}

TEST_F(AutomaticBatch, FailsIfNoSizeFits) {
  EXPECT_COMPLAINT(run(under_mpirun(2, run_.train({"training.micro_batch_size=auto", kBatch}))), 2,
                   HasSubstr("training.micro_batch_size = auto needs memory.device"));
  EXPECT_COMPLAINT(run(under_mpirun(2, run_.train(automatic(1000)))), 3, HasSubstr("it does not fit"));
  EXPECT_COMPLAINT(
      run(under_mpirun(2, run_.train(automatic(1 << 30, {"training.global_batch_size=11"})))), 2,
      HasSubstr(
          "training.global_batch_size = 11 cannot be divided evenly over 2 ranks, whatever the micro-batch size"));
}

}  // namespace
}  // namespace strata::tests

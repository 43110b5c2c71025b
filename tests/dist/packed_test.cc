// Runs of the program under mpirun on packed documents with a mask and two sources. They have the same bits on any
// number of ranks, and the planned memory, also after resuming and in evaluations.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include "tests/dist/tiny_run.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::tests {
namespace {

using simdjson::dom::element;
using testing::HasSubstr;

class Packed : public testing::Test {
 protected:
  Packed() {
    std::vector<std::uint64_t> lengths;
    std::string mask;
    for (std::uint64_t i = 0; i < 40; ++i) {
      lengths.push_back(1 + i * 11 % 21);  // some above the sequence of 16
      for (std::uint64_t k = 0; k < lengths.back(); ++k) mask += k % 3 == 2 ? '1' : '0';
    }
    tokens_.write("a.bin", lengths, mask);
    tokens_.write("b.bin", {5, 6, 7, 8, 9}, std::nullopt, 40);
  }
  std::string path(const std::string& name) const { return (tokens_.folder().path() / name).string(); }
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {
        fmt::format("data.train=[{{files=\"{}\", weight=3}}, {{files=\"{}\"}}]", path("a.bin"), path("b.bin")),
        fmt::format("training.gradient_accumulation_steps={}", 4 / ranks), "data.validation=" + path("a.bin")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  element train(int ranks, const std::vector<std::string>& more, int code = 0) {
    auto all = sets(ranks, more);
    all.push_back("report.summary=" + run_.file("summary.json"));
    const Outcome outcome = run(under_mpirun(ranks, run_.train(all)));
    EXPECT_EQ(outcome.code, code) << outcome.all();
    said_ = outcome.all();
    return parser_.load(run_.file("summary.json"));
  }
  TinyRun run_;
  TokenFolder tokens_{97};
  simdjson::dom::parser parser_;
  std::string said_;
};

TEST_F(Packed, SameBitsOnAnyNumberOfRanksAndResumed) {
  const std::string weights(std::string_view(train(1, {})["weights_hash"]));
  EXPECT_THAT(said_, HasSubstr("a.bin: "));
  EXPECT_THAT(said_, HasSubstr("of 40 documents, "));
  EXPECT_THAT(said_, HasSubstr("75.0% of the run"));
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const element summary = train(ranks, {"zero.stage=3", "zero.optimizer=host"});
    EXPECT_EQ(std::string_view(summary["weights_hash"]), weights);
    const element host = summary["memory"]["host"];
    EXPECT_EQ(std::uint64_t(host["planned_peak_bytes"]), std::uint64_t(host["measured_peak_bytes"]));
    EXPECT_EQ(std::uint64_t(summary["data"].at(0)["taken"]), 9u) << "of 12 sequences";
    EXPECT_EQ(std::uint64_t(summary["data"].at(1)["documents"]), 5u);
  }
  const std::string dir = "checkpoint.dir=" + run_.file("checkpoints");
  train(4, {dir, "checkpoint.stop_after=1", "zero.stage=2"}, 75);
  EXPECT_EQ(std::string_view(train(2, {dir})["weights_hash"]), weights);
  const auto refused = run(under_mpirun(2, run_.train(sets(2, {dir, "data.long=drop", "training.max_steps=4"}))));
  EXPECT_COMPLAINT(refused, Exit::usage, HasSubstr("data.long"));
}

TEST_F(Packed, EvaluatesTheSameOnAnyNumberOfRanks) {
  std::string first;
  for (const int ranks : {1, 2, 3}) {
    auto command = run_.command("eval", sets(1, {}));
    command.insert(command.end(), {"--json", run_.file("eval.json")});
    const Outcome outcome = run(under_mpirun(ranks, command));
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    const element result = parser_.load(run_.file("eval.json"));
    const std::string loss{result["loss_hex"].get_string().value()};
    if (first.empty()) first = loss;
    EXPECT_EQ(loss, first) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace strata::tests

// Tests strata bench memory: its runs are separate processes, with the promised peaks and bits.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using simdjson::dom::element;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BenchMemory : public testing::Test {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {kStrata, "bench", "memory"};
    for (const std::string& set :
         {std::string("model.preset=tiny-gpt2"), std::string("model.config.n_layer=4"),
          std::string("model.config.n_embd=32"), std::string("model.config.n_head=2"),
          std::string("model.config.vocab_size=97"), std::string("data.seq_len=16"),
          std::string("training.global_batch_size=4"), std::string("device.threads=1"), "memory.nvme=" + run_.file("")})
      all.insert(all.end(), {"--set", set});
    if (std::ranges::find(more, "--steps") == more.end()) all.insert(all.end(), {"--steps", "3"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TinyRun run_;
  simdjson::dom::parser parser_;
};

// The message does not appear in each of the runs that would use the folder.
TEST_F(BenchMemory, AMissingNvmeFolderIsReportedOnceAtTheStart) {
  const std::string folder = run_.file("nothing");
  const Outcome outcome = run(command({"--set", "memory.nvme=" + folder, "--only", "precision=fp32"}));
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(outcome.output, "") << "no table";
  const std::size_t first = outcome.errors.find(folder);
  ASSERT_NE(first, std::string::npos) << outcome.all();
  EXPECT_EQ(outcome.errors.find("strata: ", first), std::string::npos) << outcome.all();
}

TEST_F(BenchMemory, EverySettingRunsAsPlannedWithTheBitsOfItsGroup) {
  const Outcome outcome =
      run(command({"--only", "precision=fp32,bf16", "--only", "recompute=none,block", "--only", "accumulation=1,4",
                   "--json", run_.file("memory.json"), "--svg", run_.file("memory.svg")}),
          300);
  ASSERT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("random documents of 2 to 16 tokens"));
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("24 settings in 4 groups"), HasSubstr("the same in each group"),
                                    HasSubstr("bf16      block          4  nvme")));
  std::map<std::pair<std::string, std::int64_t>, std::set<std::string>> bits;
  std::map<std::string, std::uint64_t> peak;  // of bf16, one micro-batch
  for (const element row : parser_.load(run_.file("memory.json"))["rows"]) {
    EXPECT_EQ(std::uint64_t(row["measured_bytes"]), std::uint64_t(row["planned_bytes"]));
    EXPECT_GT(std::uint64_t(row["process_bytes"]), std::uint64_t(row["measured_bytes"]));
    EXPECT_GT(double(row["step_ms"]), 0);
    const std::string precision{std::string_view(row["precision"])};
    bits[{precision, row["accumulation"]}].emplace(std::string_view(row["bits"]));
    if (precision == "bf16" && std::int64_t(row["accumulation"]) == 1)
      peak[fmt::format("{} {}", std::string_view(row["recompute"]), std::string_view(row["optimizer"]))] =
          row["planned_device_bytes"];
  }
  EXPECT_EQ(bits.size(), 4u);
  std::set<std::string> all;
  for (const auto& [group, hashes] : bits) {
    EXPECT_EQ(hashes.size(), 1u);
    all.insert(hashes.begin(), hashes.end());
  }
  EXPECT_EQ(all.size(), 4u) << "different numerics give different bits";
  EXPECT_LT(peak["block device"], peak["none device"]);
  EXPECT_LT(peak["none host"], peak["none device"]);
  EXPECT_THAT(run_.folder().read("memory.svg"), AllOf(HasSubstr("<svg "), HasSubstr(" ms per step</title>")));
}

TEST_F(BenchMemory, SettingsThatDoNotFitAreReportedAndNotRun) {
  const Outcome outcome = run(command({"--set", "memory.device=1MB", "--only", "precision=fp32", "--only",
                                       "recompute=none", "--only", "accumulation=1"}),
                              120);
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("does not fit"), HasSubstr("nvme")));
}

TEST_F(BenchMemory, Mistakes) {
  EXPECT_COMPLAINT(run(command({"--only", "precision=fp8"})), 2, HasSubstr("--only precision=fp8"));
  EXPECT_COMPLAINT(run(command({"--set", "training.global_batch_size=6"})), 2,
                   HasSubstr("6 sequences cannot be divided into 4"));
  EXPECT_COMPLAINT(run(command({"--set", "training.micro_batch_size=auto", "--set", "memory.device=1GB"})), 2,
                   HasSubstr("compares batches of one size"));
  EXPECT_COMPLAINT(run(command({"--steps", "2"})), 2, HasSubstr("takes 3 or more"));
  run_.folder().write("notes.svg", "mine");
  EXPECT_COMPLAINT(run(command({"--svg", run_.file("notes.svg")})), 2, HasSubstr("is not a picture of strata bench"));
}

}  // namespace
}  // namespace strata::tests

// The logits of single rows. GeneratorTest compares them with those of complete sequences.
#include <gtest/gtest.h>

#include <memory>

#include "models/layers/heads/heads.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Buffer;
using testing::Doubles;
using testing::UnitRunner;

// A head with an adapter, whose table is two tiles and a part.
struct RowHead {
  static constexpr std::size_t kWords = 9000, kHidden = 24;

  static RunShape run_of(DType dtype, bool dora) {
    Adapter adapter{.rank = 3, .alpha = 6, .target_modules = {{"lm_head"}, {}}, .dora = dora};
    RunShape run{.batch = 1, .seq = 5, .dtype = dtype, .threads = 2, .training = false, .cache = 64};
    run.adapter = std::make_shared<const Adapter>(std::move(adapter));
    return run;
  }
  explicit RowHead(DType dtype, bool dora = true) : run(run_of(dtype, dora)) {}

  Doubles logits_at(std::size_t first) {
    logits.poison();
    runner.logits({cache.view(), first, 1}, logits.view());
    EXPECT_TRUE(cache.guard_is_whole());
    return logits.doubles();
  }

  RunShape run;
  std::unique_ptr<LossUnit> unit =
      make_head({"ln_f.weight", "", "lm_head.weight", kWords, kHidden, 0.03f, {0, 0.02f}}, run);
  UnitRunner runner{*unit, run, kHidden};
  Buffer cache{unit->bytes().cache / sizeof(float), DType::fp32}, logits{kWords, DType::fp32};
};

// The first row of a sequence measures the words of the table for DoRA, and the next rows use the result.
TEST(RowLogits, MeasureTheTableOncePerSequence) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    RowHead head(dtype);
    ASSERT_GE(head.cache.size(), RowHead::kWords);
    const Doubles first = head.logits_at(0);
    EXPECT_EQ(head.logits_at(1), first);
    Buffer& parameters = head.runner.parameters;
    const Parameter& magnitudes = head.runner.parameter("lora_magnitude_vector");
    for (std::size_t i = 0; i < magnitudes.size(); ++i)
      parameters.set(magnitudes.offset + i, 2 * parameters[magnitudes.offset + i]);
    EXPECT_EQ(head.logits_at(2), first) << "measured again";
    const Doubles next = head.logits_at(0);
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(next[i], 2 * first[i]) << "another sequence";
  }
  EXPECT_EQ(RowHead(DType::fp32, false).unit->bytes().cache, 0u) << "without DoRA, nothing is measured";
}

}  // namespace
}  // namespace strata::models

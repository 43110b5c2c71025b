#include "models/layers/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/device/arrays.h"
#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Doubles;
using testing::Mask;
using testing::UnitRunner;

constexpr std::size_t kPositions = 13, kHidden = 23;

struct Case {
  std::size_t vocabulary;
  bool positions;
  float dropout;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.vocabulary << " words, " << (c.positions ? "positions" : "no positions") << ", dropout " << c.dropout
       << ", " << name_of(c.dtype);
}

class EmbeddingTest : public ::testing::TestWithParam<Case> {
 protected:
  EmbeddingTest() {
    // There are few words for many tokens, so most are repeated. Some never occur.
    const auto words = static_cast<std::uint32_t>(c_.vocabulary);
    for (std::uint32_t& token : runner_.tokens) token = words - 1 - runner_.below(5) * (words / 5);
  }
  double near(double reference, double scale, double units) const {
    return device::testing::tolerance(c_.dtype, reference, scale, units);
  }
  // The gradient of one table in double precision.
  void expect_table_gradient(const std::string& name, const std::vector<std::uint32_t>& indices, std::size_t rows) {
    // The gradient through dropout is itself rounded to the dtype, before the sum over tokens.
    const double rounding = c_.dtype == DType::bf16 && c_.dropout > 0 ? 0x1p-8 : 0;
    const Doubles gradient = runner_.tensor(runner_.gradients, name);
    ASSERT_EQ(gradient.size(), rows * kHidden);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t i = 0; i < kHidden; ++i) {
        double value = 0, scale = 0;
        for (std::size_t t = 0; t < indices.size(); ++t) {
          if (indices[t] != row) continue;
          const double term = runner_.dy[t * kHidden + i] * mask_(t * kHidden + i);
          value += term;
          scale += std::abs(term);
        }
        EXPECT_NEAR(gradient[row * kHidden + i], value, near(value, scale, 40) + rounding * scale)
            << name << " row " << row;
      }
  }

  const Case& c_ = GetParam();
  const RunShape run_{3, 12, c_.dtype, 2};
  const std::unique_ptr<Unit> unit_ = make_embedding(
      {"wte", c_.positions ? "wpe" : "", c_.vocabulary, kPositions, kHidden, {0, 0.02f}, c_.dropout}, run_);
  UnitRunner runner_{*unit_, run_, kHidden};
  const Mask mask_{runner_, c_.dropout, 0};
};

TEST_P(EmbeddingTest, Forward) {
  runner_.forward();
  for (std::size_t t = 0; t < run_.tokens(); ++t)
    for (std::size_t i = 0; i < kHidden; ++i) {
      double value = runner_.parameters[runner_.parameter("wte").offset + runner_.tokens[t] * kHidden + i];
      if (c_.positions)
        value += runner_.parameters[runner_.parameter("wpe").offset + runner_.positions[t] * kHidden + i];
      // The result is rounded after the sum and again after dropout.
      const double kept = value * mask_(t * kHidden + i);
      EXPECT_NEAR(runner_.y[t * kHidden + i], kept, (c_.dropout > 0 ? 2 : 1) * near(kept, std::abs(kept), 2));
    }
}

TEST_P(EmbeddingTest, Backward) {
  runner_.backward();
  expect_table_gradient("wte", runner_.tokens, c_.vocabulary);
  if (c_.positions) expect_table_gradient("wpe", runner_.positions, kPositions);
}

TEST_P(EmbeddingTest, PartsGiveTheSameResult) {
  EXPECT_EQ(unit_->parts().size(), (c_.vocabulary + 4095) / 4096 + (c_.positions ? 1 : 0));
  runner_.forward();
  runner_.backward();
  const auto y = runner_.y.bits(), gradients = runner_.gradients.bits();
  runner_.by_parts = true;
  runner_.forward();
  runner_.backward();
  EXPECT_TRUE(runner_.y.bits() == y);
  EXPECT_TRUE(runner_.gradients.bits() == gradients);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EmbeddingTest,
                         ::testing::Values(Case{19, true, 0, DType::fp32}, Case{19, true, 0.3f, DType::fp32},
                                           Case{19, false, 0, DType::fp32}, Case{19, false, 0.3f, DType::fp32},
                                           Case{19, true, 0, DType::bf16}, Case{19, true, 0.3f, DType::bf16},
                                           // There are three tiles of rows, and the last is short.
                                           Case{8200, true, 0.3f, DType::fp32}, Case{8200, false, 0, DType::bf16}));

// Positions start after the padding's row, and each sum includes the row of its type.
TEST(EmbeddingUnitTest, PositionsMayStartLaterAndRowsHaveAType) {
  const std::size_t first = 2, types = 3, seq = 11;
  const RunShape run{2, seq, DType::fp32, 2};
  const auto unit = make_embedding({.table_name = "words",
                                    .position_name = "positions",
                                    .vocabulary = 19,
                                    .positions = seq + first,
                                    .hidden = kHidden,
                                    .init = {0, 0.02f},
                                    .first_position = first,
                                    .type_name = "types",
                                    .types = types},
                                   run);
  struct Zeros final : Model {
    explicit Zeros(std::size_t tokens) { constants_bytes = tokens * sizeof(std::uint32_t); }
    void fill_constants(std::byte* constants) const override { std::memset(constants, 0, constants_bytes); }
  };
  const Zeros zeros(run.tokens());  // a model with more than one type does not read them
  UnitRunner runner(*unit, run, kHidden, &zeros);
  for (std::uint32_t& token : runner.tokens) token = runner.below(19);
  for (std::uint32_t& type : runner.types) type = 2 * runner.below(2);  // none is of type 1
  const auto row = [&](const std::string& table, std::size_t at) {
    return runner.parameters.doubles(runner.parameter(table).offset + at * kHidden, kHidden);
  };
  runner.forward();
  for (std::size_t t = 0; t < run.tokens(); ++t) {
    const Doubles want =
        testing::sum(testing::sum(row("words", runner.tokens[t]), row("positions", first + runner.positions[t])),
                     row("types", runner.types[t]));
    EXPECT_LT(testing::relative_error(runner.y.doubles(t * kHidden, kHidden), want), 1e-6) << t;
  }

  runner.backward();
  Doubles positions((seq + first) * kHidden), of_types(types * kHidden);
  for (std::size_t i = 0; i < run.tokens() * kHidden; ++i) {
    positions[(first + runner.positions[i / kHidden]) * kHidden + i % kHidden] += runner.dy[i];
    of_types[runner.types[i / kHidden] * kHidden + i % kHidden] += runner.dy[i];
  }
  EXPECT_LT(testing::relative_error(runner.tensor(runner.gradients, "positions"), positions), 1e-6);
  EXPECT_LT(testing::relative_error(runner.tensor(runner.gradients, "types"), of_types), 1e-6);
}

// Padding rows look up their position and do not train it.
TEST(EmbeddingUnitTest, DoesNotTrainThePositionOfPadding) {
  const std::size_t first = 1, seq = 9;
  const RunShape run{2, seq, DType::fp32, 2};
  const auto unit = make_embedding({.table_name = "words",
                                    .position_name = "positions",
                                    .vocabulary = 19,
                                    .positions = seq + 2,
                                    .hidden = kHidden,
                                    .init = {0, 0.02f},
                                    .first_position = first,
                                    .padded = true},
                                   run);
  UnitRunner runner(*unit, run, kHidden);
  for (std::size_t t = 0; t < run.tokens(); ++t) runner.positions[t] = static_cast<std::uint32_t>(t % 3);
  for (std::uint32_t& token : runner.tokens) token = runner.below(19);
  runner.forward();
  const auto row = [&](const std::string& table, std::size_t at) {
    return runner.parameters.doubles(runner.parameter(table).offset + at * kHidden, kHidden);
  };
  EXPECT_LT(testing::relative_error(runner.y.doubles(0, kHidden),
                                    testing::sum(row("words", runner.tokens[0]), row("positions", first))),
            1e-6);
  runner.backward();
  Doubles positions((seq + 2) * kHidden);
  for (std::size_t i = 0; i < run.tokens() * kHidden; ++i)
    if (runner.positions[i / kHidden] > 0)
      positions[(first + runner.positions[i / kHidden]) * kHidden + i % kHidden] += runner.dy[i];
  EXPECT_LT(testing::relative_error(runner.tensor(runner.gradients, "positions"), positions), 1e-6);
}

TEST(EmbeddingUnitTest, StartsWithItsTable) {
  const RunShape run{1, 4, DType::fp32, 1};
  const auto unit = make_embedding({"wte", "wpe", 19, 13, 23, {0, 0.5f}, 0}, run);
  ASSERT_EQ(unit->parameters().size(), 2u);
  const Parameter &table = unit->parameters()[0], &positions = unit->parameters()[1];
  EXPECT_EQ(table.offset, 0u);
  EXPECT_EQ(table.shape, (std::vector<std::int64_t>{19, 23}));
  EXPECT_EQ(table.init.deviation, 0.5f);
  EXPECT_TRUE(table.decay && positions.decay);
  EXPECT_EQ(positions.offset, 512u);  // 437, rounded up to the alignment
  EXPECT_EQ(positions.shape, (std::vector<std::int64_t>{13, 23}));
  EXPECT_EQ(unit->size(), 512u + 512u);
}

TEST(EmbeddingUnitTest, PartsAreTilesOfRowsAndThePositions) {
  const RunShape run{1, 4, DType::fp32, 1};
  const auto unit = make_embedding({"wte", "wpe", 8200, 13, 23, {}, 0}, run);
  std::vector<std::size_t> boundaries;
  for (const Part& part : unit->parts()) boundaries.insert(boundaries.end(), {part.begin, part.end});
  const std::size_t tile = 4096 * 23, table = 188672;  // 8200 * 23, rounded up to the alignment
  EXPECT_EQ(boundaries, (std::vector<std::size_t>{0, tile, tile, 2 * tile, 2 * tile, table, table, table + 512}));
}

TEST(EmbeddingUnitTest, SharesItsTableInCompleteNormBlocks) {
  const auto shared = [](std::size_t vocabulary, std::size_t hidden) {
    std::vector<std::unique_ptr<Unit>> units;
    units.push_back(make_embedding({"wte", "wpe", vocabulary, 13, hidden, {}, 0}, {1, 4, DType::fp32, 1}));
    const SharedParameter table = share("lm_head.weight", units, 0, 0);
    EXPECT_EQ(table.name, "lm_head.weight");
    EXPECT_EQ(table.elements.begin, 0u);
    return table.elements.end;
  };
  EXPECT_EQ(shared(19, 23), 4096u);
  EXPECT_EQ(shared(64, 64), 4096u);
  EXPECT_EQ(shared(65, 64), 8192u);
}

// Tests the properties and costs that a planner queries.
TEST(EmbeddingUnitTest, MakesItsOutputFromTheBatchPartByPart) {
  const auto unit = make_embedding({"wte", "wpe", 8200, 13, 32, {}, 0}, {2, 4, DType::bf16, 1});
  EXPECT_FALSE(unit->ports().input || unit->ports().parameters_in_backward);
  EXPECT_TRUE(unit->ports().output_by_parts);
  EXPECT_EQ(unit->as_loss(), nullptr);
  for (const Parameter& p : unit->parameters()) EXPECT_TRUE(p.fp32_moments) << p.name;
  // Forward: rows read and written, the same for each of the four parts. Backward: the gradients written.
  const PartRange all = unit->all_parts(), table{0, 1};
  EXPECT_EQ(unit->work(Pass::forward, all).bytes, 2.0 * 8 * 32 * 2);
  EXPECT_EQ(unit->work(Pass::forward, table).bytes, 2.0 * 8 * 32 * 2 / 4);
  EXPECT_EQ(unit->work(Pass::backward, all).bytes, 2.0 * static_cast<double>(unit->size()));
  EXPECT_EQ(unit->work(Pass::backward, table).bytes, 2.0 * 4096 * 32);
  for (const Pass pass : {Pass::forward, Pass::backward}) EXPECT_EQ(unit->work(pass, all).flops, 0);
}

}  // namespace
}  // namespace strata::models

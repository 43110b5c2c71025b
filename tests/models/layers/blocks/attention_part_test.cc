#include "models/layers/blocks/attention_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

namespace strata::models {
namespace {

using device::DType;
using device::View;
using testing::Buffer;
using testing::Doubles;

constexpr std::size_t kAttendedRows = 13;
constexpr std::uint64_t kMicroBatch = 3;

// One kind of attention with its operands, which are as large as the part requires.
struct Attention {
  Attention(const AttentionSpec& s, std::size_t batch = 2, std::size_t capacity = 0, std::size_t seq = kAttendedRows)
      : spec(s),
        run{.batch = batch, .seq = seq, .dtype = DType::fp32, .threads = 1, .cache = capacity},
        documents(run.tokens(), {0, static_cast<std::uint32_t>(seq)}) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (Buffer* buffer : {&rows, &d_mixed})
      for (std::size_t i = 0; i < buffer->size(); ++i) buffer->set(i, uniform(random));
    context.batch.documents = documents.data();
    context.scalars = &scalars;
    context.micro_batch = kMicroBatch;
  }
  device::Dropout dropout() const { return {spec.dropout, 9, kMicroBatch, &scalars}; }
  void forward() {
    part.forward(lane, context, rows.view(), mixed.view(), lse.view(), dropout(), scratch.view());
    lane.synchronize();
  }
  void backward() {
    part.backward(lane, context, rows.view(), mixed.view(), lse.view(), d_mixed.view(), d_rows.view(), dropout(),
                  scratch.view());
    lane.synchronize();
  }
  // The attention of these rows, in double precision.
  Doubles reference(const Doubles& of) const {
    Doubles q, k, v;
    const std::size_t width = spec.row_width(), first = spec.query_width(), second = first + spec.key_width();
    for (std::size_t i = 0; i < of.size(); ++i) (i % width < first ? q : i % width < second ? k : v).push_back(of[i]);
    testing::Mask mask;
    mask.probability = spec.dropout;
    mask.stream = {scalars.seed, scalars.first_micro_batch + kMicroBatch, 9};
    return attention({run.batch, run.seq, spec.heads, spec.kv_heads, spec.head_dim, spec.window, spec.causal}, q, k, v,
                     mask);
  }
  void expect_whole() const {
    for (const Buffer* buffer : {&rows, &mixed, &lse, &scratch, &d_mixed, &d_rows, &cache})
      EXPECT_TRUE(buffer->guard_is_whole()) << "written past the end of a buffer";
  }

  AttentionSpec spec;
  RunShape run;
  AttentionPart part{spec, run};
  std::vector<device::RowRange> documents;
  Buffer rows{run.tokens() * spec.row_width(), DType::fp32}, d_rows{rows.size(), DType::fp32};
  Buffer mixed{run.tokens() * spec.query_width(), DType::fp32}, d_mixed{mixed.size(), DType::fp32};
  Buffer lse{run.tokens() * spec.heads, DType::fp32};
  Buffer scratch{part.scratch_bytes(run.threads) / sizeof(float) + 1, DType::fp32};
  Buffer cache{part.cache_bytes() / sizeof(float), DType::fp32};
  device::StepScalars scalars{.seed = 0x123456789abcdefull, .first_micro_batch = 40};
  Context context{};
  AbortToken abort;
  device::Lane lane{"test", 1, 0, abort};
};

const AttentionSpec kWays[] = {
    {.heads = 4, .kv_heads = 4, .head_dim = 8},
    {.heads = 4, .kv_heads = 2, .head_dim = 6},  // keys and values are narrower than queries
    {.heads = 3, .kv_heads = 1, .head_dim = 8, .window = 5},
    {.heads = 2, .kv_heads = 2, .head_dim = 10, .causal = false},
    {.heads = 2, .kv_heads = 2, .head_dim = 8, .dropout = 0.3f},
};

// As in expect_block_matches(), derivatives along two random directions are compared with central differences of the
// reference.
TEST(AttentionPartTest, EveryVariantMatchesTheReference) {
  constexpr double kTolerance = 5e-6, kStep = 1e-5;
  for (const AttentionSpec& way : kWays) {
    SCOPED_TRACE(::testing::Message() << way.heads << " heads over " << way.kv_heads << ", window " << way.window
                                      << ", causal " << way.causal << ", dropout " << way.dropout);
    Attention a(way);
    a.forward();
    const Doubles rows = a.rows.doubles(), want = a.reference(rows);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(a.mixed[i], want[i], kTolerance * testing::largest_of(want)) << i;
    a.backward();
    const Doubles d_rows = a.d_rows.doubles(), d_mixed = a.d_mixed.doubles();
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal;
    for (int direction = 0; direction < 2; ++direction) {
      Doubles along(rows.size()), more = rows, less = rows;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        along[i] = normal(random);
        more[i] += kStep * along[i];
        less[i] -= kStep * along[i];
      }
      const double slope =
          (testing::dot(d_mixed, a.reference(more)) - testing::dot(d_mixed, a.reference(less))) / (2 * kStep);
      EXPECT_NEAR(testing::dot(d_rows, along), slope, kTolerance * testing::norm_of(d_rows));
    }
    a.expect_whole();
  }
}

// Rows that arrive piece by piece find earlier rows in the cache.
TEST(AttentionPartTest, RowsAfterTheCacheMatchTheCompleteSequence) {
  for (const AttentionSpec& way : kWays) {
    if (!way.causal || way.dropout > 0) continue;
    Attention whole(way, 1), piece(way, 1, kAttendedRows, 4), row(way, 1, kAttendedRows, 1);
    EXPECT_EQ(whole.part.cache_bytes(), 0u);
    EXPECT_GE(piece.part.cache_bytes(), kAttendedRows * 2 * way.key_width() * sizeof(float));
    EXPECT_EQ(row.part.cache_bytes(), piece.part.cache_bytes()) << "calls of one row share it";
    whole.forward();
    std::memset(piece.cache.view().data, 0, piece.cache.view().bytes());
    const std::size_t width = way.row_width();
    for (std::size_t first = 0; first < kAttendedRows;) {
      Attention& next = first < 8 ? piece : row;
      const std::size_t rows = next.run.seq;
      for (std::size_t i = 0; i < rows * width; ++i) next.rows.set(i, whole.rows[first * width + i]);
      next.context.cache = {piece.cache.view(), first, rows};
      next.forward();
      // The sums are the same but in another order, in fp32.
      for (std::size_t i = 0; i < rows * way.query_width(); ++i)
        ASSERT_NEAR(next.mixed[i], whole.mixed[first * way.query_width() + i], 2e-6) << first << ", " << i;
      first += rows;
    }
    piece.expect_whole();
    row.expect_whole();
  }
}

TEST(AttentionPartTest, GenerationNeedsNoSetUp) {
  Attention trains(kWays[0]), generates(kWays[0], 1, kAttendedRows);
  EXPECT_FALSE(trains.part.set_up(trains.lane).empty());
  EXPECT_TRUE(generates.part.set_up(generates.lane).empty());
}

}  // namespace
}  // namespace strata::models

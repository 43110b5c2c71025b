#include "device/ops/attention/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/device/ops/attention/attention_case.h"

namespace strata::device {
namespace {

using namespace testing::attention;
using testing::Array;

TEST(Attention, ReferenceGradientsMatchItsForward) {
  Case c{1, 5, 2, 1, 3, 3};
  c.dropout = 0.25f;
  Operands x = AttentionRun(c).operands();
  const Results r = reference(c, x);
  const auto check = [&](Doubles& input, const Doubles& gradient) {
    const auto objective = [&](const Doubles& at) {
      const Doubles before = std::exchange(input, at);
      const Doubles o = reference(c, x).o;
      input = before;
      return std::inner_product(o.begin(), o.end(), x.d_o.begin(), 0.0);
    };
    const Doubles want = testing::gradient_of(objective, input);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(gradient[i], want[i], 1e-8);
  };
  check(x.q, r.dq);
  check(x.k, r.dk);
  check(x.v, r.dv);
}

TEST(Attention, NamesItsImplementation) {
  const Case c{1, 64, 2, 2, 64, 0, DType::bf16};
  testing::in_lane(1, [&](Lane& lane) {
    EXPECT_EQ(prepare_attention(lane, c.shape(), c.dtype, dropout_of(c)).rfind("own kernels", 0), 0u);
  });
}

TEST(Attention, AgreesWithReferenceAtTileEdges) {
  for (const std::size_t seq : {1, 2, 63, 64, 65, 127, 128, 129, 200}) expect_reference({1, seq, 2, 2, 16, 0});
}

TEST(Attention, AgreesWithReferenceForHeadSizes) {
  for (const std::size_t head_dim : {1, 16, 24, 32, 64, 80, 96, 112, 128, 160})
    expect_reference({1, 70, 1, 1, head_dim, 0});
}

TEST(Attention, AgreesWithReferenceForGroupsOfHeads) {
  for (const std::size_t kv_heads : {1, 2, 3, 6}) expect_reference({2, 70, 6, kv_heads, 8, 0});
}

// Windows of 95 (a GPU's tiles), 127 and 191 (any) are one key too short for a pair of tiles to see all of each other.
TEST(Attention, AgreesWithReferenceForWindows) {
  for (const std::size_t window : {1, 2, 16, 63, 64, 65, 95, 100, 127, 128, 130, 191, 192, 299, 300, 1000})
    expect_reference({1, 300, 1, 1, 16, window});
  // A tile's last queries may see none of the keys that its first ones see.
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const std::size_t seq : {90, 107, 300})
      for (const std::size_t window : {1, 15, 40, 64, 100}) expect_reference({1, seq, 1, 1, 16, window, dtype});
}

TEST(Attention, AgreesWithReferenceForDTypesAndPackedRows) {
  for (const DType dtype : testing::kDTypes) {
    for (const bool packed : {false, true}) {
      Case c{2, 100, 4, 2, 24, 0, dtype, 0, packed};
      expect_reference(c);
      c.dropout = 0.1f;
      c.window = 70;
      expect_reference(c);
    }
  }
}

// Head sizes and tile counts that have their own GPU kernels, or whose rows are not aligned.
TEST(Attention, AgreesWithReferenceForHeadSizesOfDTypes) {
  for (const DType dtype : testing::kDTypes) {
    for (const std::size_t head_dim : {64, 80, 128, 200}) {
      Case c{1, 76, 2, 1, head_dim, 0, dtype};
      c.dropout = head_dim == 64 ? 0 : 0.2f;
      expect_reference(c);
    }
    expect_reference({1, 133, 2, 1, 36, 66, dtype, 0.2f, true});
  }
}

RC_GTEST_PROP(Attention, AgreesWithReferenceForAnyShape, ()) {
  const auto kv_heads = *rc::gen::inRange<std::size_t>(1, 4), group = *rc::gen::inRange<std::size_t>(1, 4);
  const std::size_t longest = testing::kDevice.kind == Kind::cpu ? 150 : 90;  // tiles are 64 long; emulation is slow
  Case c{*rc::gen::inRange<std::size_t>(1, 3),  *rc::gen::inRange<std::size_t>(1, longest), kv_heads * group, kv_heads,
         *rc::gen::inRange<std::size_t>(1, 40), *rc::gen::inRange<std::size_t>(0, 160)};
  c.dtype = *rc::gen::element(DType::fp32, DType::bf16, DType::fp16);
  c.dropout = *rc::gen::element(0.0f, 0.5f);
  c.packed = *rc::gen::arbitrary<bool>();
  expect_reference(c);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Attention, GradientsOfKeysInFp32RoundToThoseOfTheDType) {
  for (const DType dtype : testing::kDTypes) {
    Case c{2, 70, 4, 2, 24, 0, dtype};
    c.documents = documents_of(70, {{1, 40}, {66}});
    AttentionRun rounded(c);
    c.fp32_key_gradients = true;
    AttentionRun wide(c);
    for (AttentionRun* run : {&rounded, &wide}) {
      run->forward(2);
      run->backward(2);
    }
    EXPECT_EQ(wide.dq, rounded.dq) << name_of(dtype);
    for (const auto& [sums, once] : {std::pair{&wide.dk, &rounded.dk}, {&wide.dv, &rounded.dv}}) {
      testing::Array again(dtype, sums->size());
      for (std::size_t i = 0; i < sums->size(); ++i) again.set(i, (*sums)[i]);
      EXPECT_EQ(again, *once) << name_of(dtype);
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const bool emulated = testing::kDevice.kind == Kind::cuda;  // which is slow, and knows no threads
  for (const auto& [dtype, documents, causal] : {std::tuple{DType::fp32, false, true},
                                                 {DType::bf16, false, true},
                                                 {DType::fp16, false, true},
                                                 {DType::fp32, true, true},
                                                 {DType::bf16, true, false}}) {
    const std::size_t seq = emulated ? 100 : 300;
    Case c{2, seq, 4, 2, 40, 0, dtype, 0.1f, true, causal};
    if (documents) c.documents = documents_of(seq, {{1, seq / 3, seq / 2}, {seq - 9}});
    AttentionRun once(c);
    once.forward(1);
    once.backward(1);
    for (const int threads : emulated ? std::vector{2} : std::vector{1, 2, 3, 5}) {
      AttentionRun again(c);
      again.forward(threads);
      again.backward(threads);
      EXPECT_EQ(once.o, again.o) << threads;
      EXPECT_EQ(once.lse, again.lse) << threads;
      EXPECT_EQ(once.dqkv, again.dqkv) << threads;
    }
  }
}

// No bit of a query's output depends on later rows of finite numbers, because generation must repeat the results of
// training.
TEST(Attention, BitsDoNotDependOnLaterRows) {
  for (const DType dtype : testing::kDTypes) {
    const Case c{1, 200, 2, 1, 32, 0, dtype};
    AttentionRun run(c), changed(c);
    for (std::size_t i = 70 * 32; i < changed.k.size(); ++i) changed.k.set(i, 3), changed.v.set(i, -2);
    run.forward(1);
    changed.forward(1);
    const std::size_t seen = 70 * 2 * 32 * size_of(dtype), rest = run.o.view().bytes() - seen;
    EXPECT_EQ(std::memcmp(run.o.data(), changed.o.data(), seen), 0) << name_of(dtype);
    EXPECT_NE(std::memcmp(run.o.data() + seen, changed.o.data() + seen, rest), 0) << name_of(dtype);
  }
}

// With a window, the last rows of a long document have the same results in a document that is only its end.
TEST(Attention, ADocumentOf65536RowsHasTheBitsOfItsEnd) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "emulation is slow";
  constexpr std::size_t kRows = 65536, kEnd = 1024, kWindow = 300, kHead = 16;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    AttentionRun whole({1, kRows, 1, 1, kHead, kWindow, dtype}), end({1, kEnd, 1, 1, kHead, kWindow, dtype});
    const auto copy_end = [&](const Array& from, Array& to) {
      std::memcpy(to.data(), from.data() + (from.size() - to.size()) * size_of(dtype), to.size() * size_of(dtype));
    };
    copy_end(whole.q, end.q);
    copy_end(whole.k, end.k);
    copy_end(whole.v, end.v);
    copy_end(whole.d_o, end.d_o);
    for (AttentionRun* run : {&whole, &end}) run->forward(2), run->backward(2);
    const std::size_t complete = (kEnd - kWindow) * kHead;  // rows that see a whole window, or whose keys do
    for (std::size_t i = 1; i <= complete; ++i) {
      ASSERT_EQ(whole.o[whole.o.size() - i], end.o[end.o.size() - i]) << i;
      ASSERT_EQ(whole.dq[whole.dq.size() - i], end.dq[end.dq.size() - i]) << i;
      ASSERT_EQ(whole.dk[whole.dk.size() - i], end.dk[end.dk.size() - i]) << i;
      ASSERT_EQ(whole.dv[whole.dv.size() - i], end.dv[end.dv.size() - i]) << i;
    }
  }
}

TEST(Attention, DropoutKeepsItsShareOfProbabilities) {
  Case c{1, 200, 4, 4, 16, 0};
  c.dropout = 0.3f;
  AttentionRun run(c);
  for (std::size_t i = 0; i < run.v.size(); ++i) run.v.set(i, 1);  // so that o sums what is kept, scaled
  run.forward(1);
  double sum = 0, variance = 0;
  Doubles p;
  const Operands x = run.operands();
  for (std::size_t h = 0; h < c.heads; ++h) {
    for (std::size_t i = 0; i < c.seq; ++i) {
      sum += double{run.o[(i * c.heads + h) * c.head_dim]};
      softmax_row(c, x, 0, h, i, p);
      for (const double e : p) variance += e * e * 0.3 / 0.7;
    }
  }
  EXPECT_NEAR(sum, static_cast<double>(c.heads * c.seq), 5 * std::sqrt(variance));
  EXPECT_GT(std::abs(sum - static_cast<double>(c.heads * c.seq)), 1e-2);  // something was dropped at all
}

TEST(Attention, DropoutCountsTheHeadsOfTheCompleteLayer) {
  for (const DType dtype : testing::kDTypes) {
    Case c{2, 70, 2, 1, 16, 0, dtype, 0.3f};
    c.layer_heads = 6;
    c.first_head = 4;
    expect_reference(c);
  }
}

TEST(Attention, LargeScoresStayFinite) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    AttentionRun run({1, 130, 1, 1, 16, 0, dtype});
    run.set_scale(1e4f);
    run.forward(1);
    run.backward(1);
    const Results r = run.results();
    for (const Doubles* values : {&r.o, &r.lse, &r.dq, &r.dk, &r.dv})
      for (const double x : *values) ASSERT_TRUE(std::isfinite(x)) << name_of(dtype);
  }
}

// The greatest score of the first tile of keys says nothing about later ones: there, the weights relative to it would
// exceed the range of fp32.
TEST(Attention, AgreesWithReferenceIfScoresRiseFromTileToTile) {
  constexpr float kMost = 30;
  for (const DType dtype : testing::kDTypes) {
    const Case c{1, 300, 2, 1, 32, 0, dtype};
    AttentionRun run(c);
    for (std::size_t i = 0; i < run.k.size(); ++i) {
      const auto tile = static_cast<float>(i / c.head_dim / 64);
      run.k.set(i, run.k[i] * (1 + tile * (kMost - 1) / 4));
    }
    run.forward(2);
    run.backward(2);
    Results sizes;
    const Results got = run.results(), want = reference(c, run.operands(), got.o, &sizes);
    double rise = 0;
    for (std::size_t i = 64; i < c.seq; ++i) rise = std::max(rise, want.lse[i] - want.lse[63]);
    EXPECT_GT(rise, 90) << "weights relative to the first tile reach e^" << rise;
    const auto terms = static_cast<double>(c.head_dim + 2 * c.seq);
    const double size = 4 * kMost;
    expect_near(got.o, want.o, sizes.o, dtype, terms, size, "o");
    expect_near(got.lse, want.lse, sizes.lse, DType::fp32, terms, size, "lse");
    expect_near(got.dq, want.dq, sizes.dq, dtype, terms, size * kMost, "dq");
    expect_near(got.dk, want.dk, sizes.dk, dtype, terms, size, "dk");
    expect_near(got.dv, want.dv, sizes.dv, dtype, terms, size, "dv");
  }
}

// Non-finite values must reach the outputs, because the loss scaler relies on it.
TEST(Attention, NaNReachesEveryQueryThatSeesIt) {
  for (const DType dtype : testing::kDTypes) {
    AttentionRun run({1, 130, 1, 1, 16, 0, dtype});
    run.k.set(70 * 16 + 3, std::numeric_limits<float>::quiet_NaN());
    run.forward(1);
    run.backward(1);
    for (std::size_t i = 0; i < 130; ++i) {
      EXPECT_EQ(std::isnan(run.o[i * 16]), i >= 70) << name_of(dtype) << " " << i;
      EXPECT_EQ(std::isnan(run.lse[i]), i >= 70) << name_of(dtype) << " " << i;
      EXPECT_EQ(std::isnan(run.dq[i * 16]), i >= 70) << name_of(dtype) << " " << i;
    }
  }
}

// A score that overflows to -infinity has the weight 0.
TEST(Attention, AnInfinitelyLowScoreHasNoWeight) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    AttentionRun run({1, 3, 1, 1, 16, 0, dtype});
    for (std::size_t e = 0; e < 16; ++e) {
      for (std::size_t i = 0; i < 3; ++i) run.k.set(i * 16 + e, i == 1 ? -1e20f : 0), run.q.set(i * 16 + e, 1e20f);
      for (std::size_t i = 0; i < 3; ++i) run.v.set(i * 16 + e, static_cast<float>(i));
    }
    run.forward(1);
    EXPECT_EQ(run.o[16], 0) << name_of(dtype);
    EXPECT_EQ(run.o[32], 1) << "the mean of rows 0 and 2, " << name_of(dtype);
  }
}

}  // namespace
}  // namespace strata::device

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/device/ops/attention/attention_case.h"

// Attention over sequences that hold several documents or none, or whose queries see the keys after them.
namespace strata::device {
namespace {

using namespace testing::attention;
using testing::Array;

constexpr bool kEmulated = testing::kDevice.kind == Kind::cuda;  // which is slow

rc::Gen<std::vector<RowRange>> any_documents(std::size_t batch, std::size_t seq) {
  return rc::gen::exec([=] {
    const std::size_t longest = *rc::gen::inRange<std::size_t>(1, seq + 1);
    std::vector<std::vector<std::size_t>> lengths(batch);
    for (std::vector<std::size_t>& sequence : lengths) {
      const std::size_t full = *rc::gen::inRange<std::size_t>(0, seq + 1);
      for (std::size_t used = 0; used < full; used += sequence.back())
        sequence.push_back(std::min(*rc::gen::inRange<std::size_t>(1, longest + 1), full - used));
    }
    return documents_of(seq, lengths);
  });
}

TEST(AttentionDocuments, AgreesWithReferenceForBidirectionalWindows) {
  for (const std::size_t window : {0, 1, 2, 31, 64, 126, 127, 128, 129, 300, 1000}) {
    Case c{1, 300, 1, 1, 16, window};
    c.causal = false;
    expect_reference(c);
  }
}

RC_GTEST_PROP(AttentionDocuments, AgreeWithReference, ()) {
  const auto kv_heads = *rc::gen::inRange<std::size_t>(1, 3), group = *rc::gen::inRange<std::size_t>(1, 3);
  const std::size_t longest = kEmulated ? 90 : 300, most = kEmulated ? 2 : 3;
  Case c{
      *rc::gen::inRange<std::size_t>(1, most), *rc::gen::inRange<std::size_t>(1, longest), kv_heads * group, kv_heads,
      *rc::gen::inRange<std::size_t>(1, 24),   *rc::gen::inRange<std::size_t>(0, 160)};
  c.dtype = *rc::gen::element(DType::fp32, DType::bf16, DType::fp16);
  c.dropout = *rc::gen::element(0.0f, 0.0f, 0.5f);
  c.packed = *rc::gen::arbitrary<bool>();
  c.causal = *rc::gen::arbitrary<bool>();
  c.documents = *any_documents(c.batch, c.seq);
  expect_reference(c);
  RC_ASSERT(!::testing::Test::HasFailure());
}

// Rows [begin, begin + rows) of [all rows, width].
Array rows_of(const Array& from, std::size_t width, std::size_t begin, std::size_t rows) {
  Array to(from.dtype(), rows * width);
  std::memcpy(to.data(), from.data() + begin * width * size_of(from.dtype()), to.view().bytes());
  return to;
}

// The document at `row` has the same bits in `together` as alone in a sequence that ends with `padding` rows of no
// document.
void expect_same_bits_alone(const Case& c, const AttentionRun& together, std::size_t row, std::size_t padding) {
  const std::size_t length = c.documents[row].end - c.documents[row].first;
  const std::size_t wide = c.heads * c.head_dim, narrow = c.kv_heads * c.head_dim;
  Case single{1, length + padding, c.heads, c.kv_heads, c.head_dim, c.window, c.dtype};
  single.causal = c.causal;
  single.documents = documents_of(length + padding, {{length}});
  AttentionRun alone(single, 99);
  const auto copy = [&](const Array& from, Array& to, std::size_t width) {
    const Array rows = rows_of(from, width, row, length);
    std::memcpy(to.data(), rows.data(), length * width * size_of(c.dtype));
  };
  copy(together.q, alone.q, wide);
  copy(together.k, alone.k, narrow);
  copy(together.v, alone.v, narrow);
  copy(together.d_o, alone.d_o, wide);
  alone.forward(1);
  alone.backward(1);
  const auto same = [&](const Array& a, const Array& b, std::size_t width) {
    return rows_of(a, width, row, length) == rows_of(b, width, 0, length);
  };
  EXPECT_TRUE(same(together.o, alone.o, wide)) << "o of the document at row " << row;
  EXPECT_TRUE(same(together.dq, alone.dq, wide)) << "dq of the document at row " << row;
  EXPECT_TRUE(same(together.dk, alone.dk, narrow)) << "dk of the document at row " << row;
  EXPECT_TRUE(same(together.dv, alone.dv, narrow)) << "dv of the document at row " << row;
  for (std::size_t head = 0; head < c.heads; ++head)
    EXPECT_TRUE(rows_of(together.lse, 1, (row / c.seq * c.heads + head) * c.seq + row % c.seq, length) ==
                rows_of(alone.lse, 1, head * single.seq, length))
        << "lse of the document at row " << row;
}

TEST(AttentionDocuments, BitsDoNotDependOnADocumentsPlace) {
  const std::size_t seq = kEmulated ? 170 : 400;
  using Lengths = std::vector<std::vector<std::size_t>>;
  const Lengths few = {{3, 70, 1, 96}, {33, 130}}, many = {{3, 70, 130, 1, 64, 129}, {37, 200, 128}};
  for (const DType dtype : testing::kDTypes) {
    for (const auto& [causal, window] : {std::pair{true, 0u}, {true, 50u}, {false, 0u}, {false, 100u}}) {
      if (kEmulated && (dtype == DType::fp16 || (window == 50) != (causal && dtype == DType::bf16))) continue;
      Case c{2, seq, 2, 1, 24, window, dtype};
      c.causal = causal;
      c.documents = documents_of(seq, kEmulated ? few : many);
      SCOPED_TRACE(::testing::PrintToString(c));
      AttentionRun together(c);
      together.forward(2);
      together.backward(2);
      for (std::size_t row = 0; row < c.rows(); ++row)
        if (c.documents[row].end > 0 && c.documents[row].first == row % seq)
          for (const std::size_t padding : {0, 7}) expect_same_bits_alone(c, together, row, padding);
    }
  }
}

// NaN in one document stays there, because no tile extends beyond its document.
TEST(AttentionDocuments, NaNStaysInItsDocument) {
  for (const bool causal : {true, false}) {
    Case c{1, 150, 1, 1, 16, 0};
    c.causal = causal;
    c.documents = documents_of(150, {{40, 65, 30}});
    AttentionRun run(c);
    for (Array* array : {&run.q, &run.k, &run.v, &run.d_o}) {
      array->set(70 * 16 + 3, std::numeric_limits<float>::quiet_NaN());
      array->set(140 * 16 + 3, std::numeric_limits<float>::quiet_NaN());  // of no document
    }
    run.forward(2);
    run.backward(2);
    for (std::size_t i = 0; i < 150; ++i) {
      const bool sees = i >= (causal ? 70 : 40) && i < 105;
      EXPECT_EQ(std::isnan(run.o[i * 16]), sees) << i;
      EXPECT_EQ(std::isnan(run.lse[i]), sees) << i;
      if (i >= 40 && i < 105) continue;
      for (const Array* gradient : {&run.dq, &run.dk, &run.dv}) EXPECT_TRUE(std::isfinite((*gradient)[i * 16])) << i;
    }
  }
}

}  // namespace
}  // namespace strata::device

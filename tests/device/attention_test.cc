#include "device/ops/attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <utility>
#include <vector>

#include "device/cpu/kernels/attention.h"
#include "device/numeric/philox.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using Doubles = std::vector<double>;

struct Case {
  std::size_t batch, seq, heads, kv_heads, head_dim, window;
  DType dtype = DType::fp32;
  float dropout = 0;
  bool packed = false;  // q, k, v inside one row, as a fused projection writes them

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  std::size_t rows() const { return batch * seq; }
  std::size_t packed_row() const { return (heads + 2 * kv_heads) * head_dim; }
  AttentionShape shape() const {
    const std::size_t q = packed ? packed_row() : heads * head_dim, kv = packed ? packed_row() : kv_heads * head_dim;
    return {batch, seq, heads, kv_heads, head_dim, q, kv, kv, scale(), window};
  }
  std::size_t index(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const {
    return ((b * heads + h) * seq + i) * seq + j;
  }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "batch " << c.batch << " seq " << c.seq << " heads " << c.heads << "/" << c.kv_heads << " head_dim "
       << c.head_dim << " window " << c.window << " " << name_of(c.dtype) << " dropout " << c.dropout
       << (c.packed ? " packed" : "");
}

// On the heap, which tests on a GPU make reachable.
const StepScalars& scalars() {
  static const auto kept =
      std::make_unique<StepScalars>(StepScalars{.seed = 0x123456789abcdefull, .first_micro_batch = 5});
  return *kept;
}
constexpr std::uint32_t kSite = 77;
Dropout dropout_of(const Case& c) {
  return {c.dropout, kSite, 2, &scalars()};
}
double keep_factor(const Case& c, std::size_t index) {
  if (c.dropout == 0) return 1;
  const RandomStream stream{scalars().seed, scalars().first_micro_batch + 2, kSite};
  return random_word(stream, index) >= drop_threshold(c.dropout) ? 1 / (1 - double{c.dropout}) : 0;
}

// Dense q, d_o [rows, heads, head_dim], k and v [rows, kv_heads, head_dim], and what follows from them.
struct Operands {
  Doubles q, k, v, d_o;
};
struct Results {
  Doubles o, lse, dq, dk, dv;
};

bool visible(const Case& c, std::size_t i, std::size_t j) {
  return j <= i && (c.window == 0 || i < j + c.window);
}

// One query's probabilities over all keys (zero where it must not look), and the log of their denominator.
double softmax_row(const Case& c, const Operands& x, std::size_t b, std::size_t h, std::size_t i, Doubles& p) {
  const std::size_t d = c.head_dim, kv = h / (c.heads / c.kv_heads);
  p.assign(c.seq, -std::numeric_limits<double>::infinity());
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (std::size_t j = 0; j < c.seq; ++j) {
    if (!visible(c, i, j)) continue;
    double dot = 0;
    for (std::size_t e = 0; e < d; ++e)
      dot += x.q[((b * c.seq + i) * c.heads + h) * d + e] * x.k[((b * c.seq + j) * c.kv_heads + kv) * d + e];
    p[j] = dot * double{c.scale()};
    top = std::max(top, p[j]);
  }
  for (double& e : p) total += e = std::exp(e - top);
  for (double& e : p) e /= total;
  return top + std::log(total);
}

// In doubles, straight from the definition. `o_stored` (the rounded output) is what backward takes as o, if given;
// `sizes` becomes the sums over keys or queries with absolute values of their terms.
Results reference(const Case& c, const Operands& x, const Doubles& o_stored = {}, Results* sizes = nullptr) {
  const std::size_t d = c.head_dim;
  Results r{Doubles(x.q.size()), Doubles(c.batch * c.heads * c.seq), Doubles(x.q.size()), Doubles(x.k.size()),
            Doubles(x.v.size())};
  Results ignored;
  if (!sizes) sizes = &ignored;
  *sizes = r;
  const auto add = [](double term, double& sum, double& size) {
    sum += term;
    size += std::abs(term);
  };
  const Doubles& o = o_stored.empty() ? r.o : o_stored;
  Doubles p;
  for (std::size_t task = 0; task < c.batch * c.heads * c.seq; ++task) {
    const std::size_t b = task / c.seq / c.heads, h = task / c.seq % c.heads, i = task % c.seq;
    r.lse[task] = softmax_row(c, x, b, h, i, p);
    const std::size_t q_at = ((b * c.seq + i) * c.heads + h) * d;
    const auto kv_at = [&](std::size_t j) { return ((b * c.seq + j) * c.kv_heads + h / (c.heads / c.kv_heads)) * d; };
    for (std::size_t j = 0; j <= i; ++j)
      for (std::size_t e = 0; e < d; ++e)
        add(p[j] * keep_factor(c, c.index(b, h, i, j)) * x.v[kv_at(j) + e], r.o[q_at + e], sizes->o[q_at + e]);
    double mean = 0;
    for (std::size_t e = 0; e < d; ++e) mean += x.d_o[q_at + e] * o[q_at + e];
    for (std::size_t j = 0; j <= i; ++j) {
      const double keep = keep_factor(c, c.index(b, h, i, j));
      double dp = 0;
      for (std::size_t e = 0; e < d; ++e) {
        dp += x.d_o[q_at + e] * x.v[kv_at(j) + e];
        add(p[j] * keep * x.d_o[q_at + e], r.dv[kv_at(j) + e], sizes->dv[kv_at(j) + e]);
      }
      const double ds = p[j] * (dp * keep - mean) * double{c.scale()};
      for (std::size_t e = 0; e < d; ++e) {
        add(ds * x.k[kv_at(j) + e], r.dq[q_at + e], sizes->dq[q_at + e]);
        add(ds * x.q[q_at + e], r.dk[kv_at(j) + e], sizes->dk[kv_at(j) + e]);
      }
    }
  }
  return r;
}

// Calls the operations on inputs laid out as the case says.
class AttentionRun {
 public:
  explicit AttentionRun(const Case& c, unsigned seed = 1) : case_(c), shape_(c.shape()) {
    const std::size_t q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    if (c.packed) {
      qkv = values(c.rows() * c.packed_row(), seed);
    } else {
      q = values(c.rows() * q_width, seed);
      k = values(c.rows() * kv_width, seed + 1);
      v = values(c.rows() * kv_width, seed + 2);
    }
    d_o = values(c.rows() * q_width, seed + 3);
  }

  void set_scale(float scale) { shape_.scale = scale; }

  void forward(int threads) {
    o = Array(case_.dtype, case_.rows() * case_.heads * case_.head_dim);
    lse = Array(DType::fp32, case_.rows() * case_.heads);
    Array workspace = make_workspace(threads);
    testing::in_lane(threads, [&](Lane& lane) {
      attention_forward(lane, shape_, part(qkv, q, 0), part(qkv, k, k_head()), part(qkv, v, v_head()), o.view(),
                        lse.view(), dropout_of(case_), workspace.view());
    });
  }

  void backward(int threads) {
    dqkv = Array(case_.dtype, qkv.size());
    dq = Array(case_.dtype, q.size());
    dk = Array(case_.dtype, k.size());
    dv = Array(case_.dtype, v.size());
    Array workspace = make_workspace(threads);
    testing::in_lane(threads, [&](Lane& lane) {
      attention_backward(lane, shape_, part(qkv, q, 0), part(qkv, k, k_head()), part(qkv, v, v_head()), o.view(),
                         lse.view(), d_o.view(), part(dqkv, dq, 0), part(dqkv, dk, k_head()), part(dqkv, dv, v_head()),
                         dropout_of(case_), workspace.view());
    });
  }

  Operands operands() const {
    return {dense(qkv, q, 0, case_.heads), dense(qkv, k, k_head(), case_.kv_heads),
            dense(qkv, v, v_head(), case_.kv_heads), all(d_o)};
  }
  Results results() const {
    return {all(o), all(lse), dense(dqkv, dq, 0, case_.heads), dense(dqkv, dk, k_head(), case_.kv_heads),
            dense(dqkv, dv, v_head(), case_.kv_heads)};
  }

  Array qkv = values(0, 0), q = qkv, k = qkv, v = qkv, d_o = qkv, o = qkv, lse = qkv, dqkv = qkv, dq = qkv, dk = qkv,
        dv = qkv;

  const AttentionShape& shape() const { return shape_; }

 private:
  Array values(std::size_t size, unsigned seed) const { return Array::random(case_.dtype, size, seed, 2); }
  std::size_t k_head() const { return case_.heads; }
  std::size_t v_head() const { return case_.heads + case_.kv_heads; }
  static Doubles all(const Array& a) { return a.doubles(0, a.size()); }
  View part(Array& together, Array& alone, std::size_t first_head) const {
    if (!case_.packed) return alone.view();
    const std::size_t offset = first_head * case_.head_dim;
    return together.view().sub(offset, together.size() - offset);
  }
  Doubles dense(const Array& together, const Array& alone, std::size_t first_head, std::size_t heads) const {
    if (!case_.packed) return all(alone);
    Doubles values;
    for (std::size_t row = 0; row < case_.rows(); ++row)
      for (std::size_t e = 0; e < heads * case_.head_dim; ++e)
        values.push_back(double{together[row * case_.packed_row() + first_head * case_.head_dim + e]});
    return values;
  }
  // Full of NaN: nothing may rely on what the workspace held.
  Array make_workspace(int threads) const {
    Array workspace(
        DType::fp32,
        attention_workspace(testing::kDevice, shape_, case_.dtype, case_.dropout > 0, threads) / sizeof(float) + 1);
    std::memset(workspace.data(), 0xff, workspace.view().bytes());
    return workspace;
  }

  Case case_;
  AttentionShape shape_;
};

double roundoff(DType t) {
  return t == DType::fp32 ? 0x1p-24 : t == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

// One rounding to the dtype (fp16: or half the smallest subnormal), and fp32 sums of `terms` terms of about `size`
// each: at worst terms * size * 2^-24, as operands are uniform in (-2, 2). Tensor cores take rounded probabilities and
// gradients of scores: an error of one rounding of each term, whose absolute values sum to `sizes`.
void expect_near(const Doubles& got, const Doubles& want, const Doubles& sizes, DType dtype, double terms, double size,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size());
  const bool tensor_cores = testing::kDevice.kind == Kind::cuda && dtype != DType::fp32;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = roundoff(dtype) * (std::abs(want[i]) + (tensor_cores ? sizes[i] : 0)) + terms * size * 0x1p-24;
    if (!(std::abs(got[i] - want[i]) <= bound)) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", not " << want[i] << " within " << bound;
      return;
    }
  }
}

void expect_reference(const Case& c) {
  SCOPED_TRACE(::testing::PrintToString(c));
  AttentionRun run(c);
  run.forward(2);
  run.backward(2);
  Results sizes;
  const Results got = run.results(), want = reference(c, run.operands(), got.o, &sizes);
  const auto d = static_cast<double>(c.head_dim), n = static_cast<double>(c.seq);
  const auto group = static_cast<double>(c.heads / c.kv_heads);
  const double kept = 1 / (1 - double{c.dropout});
  expect_near(got.o, want.o, sizes.o, c.dtype, d + n, 2 * kept, "o");
  expect_near(got.lse, want.lse, sizes.lse, DType::fp32, d + n, 2, "lse");
  // Gradients multiply two such sums (d_o v^T with its mean, and its sum over keys or queries).
  expect_near(got.dq, want.dq, sizes.dq, c.dtype, d + n, 4 * kept, "dq");
  expect_near(got.dk, want.dk, sizes.dk, c.dtype, d + n * group, 4 * kept, "dk");
  expect_near(got.dv, want.dv, sizes.dv, c.dtype, d + n * group, 4 * kept, "dv");
}

TEST(Attention, ReferenceGradientsAreThoseOfItsForward) {
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

TEST(Attention, SaysWhatComputesIt) {
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

// Sizes of heads and numbers of tiles for which a GPU has kernels of its own, or rows that are not aligned.
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

TEST(Attention, BitsDoNotDependOnThreads) {
  for (const DType dtype : testing::kDTypes) {
    const bool emulated = testing::kDevice.kind == Kind::cuda;  // which is slow, and knows no threads
    const Case c{2, emulated ? 100u : 300u, 4, 2, 40, 0, dtype, 0.1f, true};
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

TEST(Attention, BitsDoNotDependOnInstructionSet) {
  const Case c{1, 100, 2, 1, 24, 70};
  const AttentionRun inputs(c);
  const auto run = [&](const cpu::AttentionKernels& kernels) {
    const std::size_t rows = c.seq * c.heads, wide = rows * c.head_dim, narrow = wide / c.heads;
    Array q = inputs.q, k = inputs.k, v = inputs.v, d_o = inputs.d_o;
    std::vector<Array> out;
    for (const std::size_t size : {wide, rows, rows, rows * 32, wide, narrow, narrow})
      out.emplace_back(DType::fp32, size);
    cpu::AttentionCall call{.batch = 1, .seq = c.seq, .heads = 2, .kv_heads = 1, .head_dim = 24, .window = c.window};
    call.q_stride = 48;
    call.k_stride = call.v_stride = 24;
    call.scale = c.scale();
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    call.d_o = d_o.data();
    call.o_read = call.o = out[0].data();
    call.lse = out[1].floats();
    call.delta = out[2].floats();
    call.dq_sum = out[3].floats();
    call.dq = out[4].data();
    call.dk = out[5].data();
    call.dv = out[6].data();
    std::vector<std::uint32_t> turns(c.heads * call.tiles());
    call.turns = turns.data();
    call.random = {1, 2, 3};
    call.threshold = drop_threshold(0.2f);
    call.keep_scale = 1 / 0.8f;
    Array scratch(DType::fp32, cpu::attention_scratch(call.padded()));
    for (std::size_t head = 0; head < 2; ++head) kernels.forward[0](call, 0, head, 0, scratch.floats());
    kernels.delta[0](call, 0, c.seq);
    for (std::size_t tile = 0; tile < call.tiles(); ++tile) kernels.backward[0](call, 0, 0, tile, scratch.floats());
    return out;
  };
  testing::expect_same_bits_on_both_isas(cpu::avx2::attention_kernels_table, cpu::avx512::attention_kernels_table, run);
}

// A query's output does not depend on what comes after it, to the bit: generation must repeat what training saw.
TEST(Attention, BitsDoNotDependOnLaterRows) {
  const Case c{1, 200, 2, 1, 32, 0};
  AttentionRun run(c), changed(c);
  for (std::size_t i = 70 * 32; i < changed.k.size(); ++i) changed.k.set(i, 3), changed.v.set(i, -2);
  run.forward(1);
  changed.forward(1);
  const std::size_t seen = 70 * 2 * 32;
  EXPECT_EQ(std::memcmp(run.o.data(), changed.o.data(), seen * sizeof(float)), 0);
  EXPECT_NE(run.o[seen], changed.o[seen]);
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

TEST(Attention, LargeScoresStayFinite) {
  AttentionRun run({1, 130, 1, 1, 16, 0});
  run.set_scale(1e4f);
  run.forward(1);
  run.backward(1);
  const Results r = run.results();
  for (const Doubles* values : {&r.o, &r.lse, &r.dq, &r.dk, &r.dv})
    for (const double x : *values) ASSERT_TRUE(std::isfinite(x));
}

// What is not finite must reach the outputs: the loss scaler counts on it.
TEST(Attention, NaNReachesEveryQueryThatSeesIt) {
  AttentionRun run({1, 130, 1, 1, 16, 0});
  run.k.set(70 * 16 + 3, std::numeric_limits<float>::quiet_NaN());
  run.forward(1);
  run.backward(1);
  for (std::size_t i = 0; i < 130; ++i) {
    EXPECT_EQ(std::isnan(run.o[i * 16]), i >= 70) << i;
    EXPECT_EQ(std::isnan(run.lse[i]), i >= 70) << i;
    EXPECT_EQ(std::isnan(run.dq[i * 16]), i >= 70) << i;
  }
}

}  // namespace
}  // namespace strata::device

#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "device/numeric/philox.h"
#include "device/ops/attention/attention.h"
#include "tests/device/arrays.h"

// A call of attention, its expected results, and its actual ones.
namespace strata::device::testing::attention {

using Doubles = std::vector<double>;

// All NaN in every dtype, also after a rounding to bf16 that adds to the bits: what is not written must not look right.
inline Array unwritten(DType dtype, std::size_t size) {
  Array array(dtype, size);
  auto* const words = reinterpret_cast<std::uint16_t*>(array.data());
  std::fill(words, words + array.view().bytes() / sizeof(std::uint16_t), std::uint16_t{0x7fc0});
  return array;
}

struct Case {
  std::size_t batch, seq, heads, kv_heads, head_dim, window;
  DType dtype = DType::fp32;
  float dropout = 0;
  bool packed = false;  // q, k, v inside one row, as a fused projection writes them
  bool causal = true;
  std::vector<RowRange> documents = std::vector<RowRange>(batch * seq, {0, static_cast<std::uint32_t>(seq)});
  std::size_t layer_heads = 0, first_head = 0;  // see AttentionShape
  bool fp32_key_gradients = false;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  std::size_t rows() const { return batch * seq; }
  std::size_t packed_row() const { return (heads + 2 * kv_heads) * head_dim; }
  AttentionShape shape() const {
    const std::size_t q = packed ? packed_row() : heads * head_dim, kv = packed ? packed_row() : kv_heads * head_dim;
    return {batch,  seq,  heads,       kv_heads,   head_dim,          q, kv, kv, scale(), window,
            causal, true, layer_heads, first_head, fp32_key_gradients};
  }
  std::size_t index(std::size_t b, std::size_t h, std::size_t i, std::size_t j) const {
    return ((b * (layer_heads > 0 ? layer_heads : heads) + first_head + h) * seq + i) * seq + j;
  }
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << "batch " << c.batch << " seq " << c.seq << " heads " << c.heads << "/" << c.kv_heads << " head_dim "
       << c.head_dim << " window " << c.window << " " << name_of(c.dtype) << " dropout " << c.dropout
       << (c.packed ? " packed" : "") << (c.causal ? "" : " bidirectional") << ", documents";
  for (std::size_t row = 0; row < c.rows(); ++row) {
    const RowRange& at = c.documents[row];
    if (at.end == 0 || at.first == row % c.seq) *out << " " << row << "+" << (at.end - at.first);
  }
}

// Sequences with documents of these lengths, followed by rows without a document.
inline std::vector<RowRange> documents_of(std::size_t seq, const std::vector<std::vector<std::size_t>>& lengths) {
  std::vector<RowRange> documents;
  for (const std::vector<std::size_t>& sequence : lengths) {
    std::size_t first = 0;
    for (const std::size_t length : sequence) {
      documents.insert(documents.end(), length,
                       {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first + length)});
      first += length;
    }
    documents.insert(documents.end(), seq - first, {});
  }
  return documents;
}

// The data is on the heap, which tests on a GPU make addressable.
inline const StepScalars& scalars() {
  static const auto kept =
      std::make_unique<StepScalars>(StepScalars{.seed = 0x123456789abcdefull, .first_micro_batch = 5});
  return *kept;
}
inline constexpr std::uint32_t kSite = 77;
inline Dropout dropout_of(const Case& c) {
  return {c.dropout, kSite, 2, &scalars()};
}
inline double keep_factor(const Case& c, std::size_t index) {
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

inline bool visible(const Case& c, std::size_t b, std::size_t i, std::size_t j) {
  const RowRange& document = c.documents[b * c.seq + i];
  if (j < document.first || j >= document.end) return false;
  if (c.causal) return j <= i && (c.window == 0 || i < j + c.window);
  return c.window == 0 || (i < j ? j - i : i - j) <= c.window / 2;
}

// One query's probabilities over all keys (zero for keys that it does not see), and the log of their denominator; 0 if
// it sees no key.
inline double softmax_row(const Case& c, const Operands& x, std::size_t b, std::size_t h, std::size_t i, Doubles& p) {
  const std::size_t d = c.head_dim, kv = h / (c.heads / c.kv_heads);
  p.assign(c.seq, -std::numeric_limits<double>::infinity());
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (std::size_t j = 0; j < c.seq; ++j) {
    if (!visible(c, b, i, j)) continue;
    double dot = 0;
    for (std::size_t e = 0; e < d; ++e)
      dot += x.q[((b * c.seq + i) * c.heads + h) * d + e] * x.k[((b * c.seq + j) * c.kv_heads + kv) * d + e];
    p[j] = dot * double{c.scale()};
    top = std::max(top, p[j]);
  }
  if (std::isinf(top)) {
    p.assign(c.seq, 0);
    return 0;
  }
  for (double& e : p) total += e = std::exp(e - top);
  for (double& e : p) e /= total;
  return top + std::log(total);
}

// Computed in double precision, directly from the definition. Backward uses `o_stored` (the rounded output) as o, if
// given. `sizes` receives the same sums with the absolute values of their terms.
inline Results reference(const Case& c, const Operands& x, const Doubles& o_stored = {}, Results* sizes = nullptr) {
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
    for (std::size_t j = 0; j < c.seq; ++j)
      for (std::size_t e = 0; e < d; ++e)
        add(p[j] * keep_factor(c, c.index(b, h, i, j)) * x.v[kv_at(j) + e], r.o[q_at + e], sizes->o[q_at + e]);
    double mean = 0;
    for (std::size_t e = 0; e < d; ++e) mean += x.d_o[q_at + e] * o[q_at + e];
    for (std::size_t j = 0; j < c.seq; ++j) {
      if (p[j] == 0) continue;
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
    o = unwritten(case_.dtype, case_.rows() * case_.heads * case_.head_dim);
    lse = unwritten(DType::fp32, case_.rows() * case_.heads);
    Array workspace = make_workspace(threads);
    in_lane(threads, [&](Lane& lane) {
      attention_forward(lane, shape_, case_.documents.data(), part(qkv, q, 0), part(qkv, k, k_head()),
                        part(qkv, v, v_head()), o.view(), lse.view(), dropout_of(case_), workspace.view());
    });
  }

  void backward(int threads) {
    dqkv = unwritten(case_.dtype, qkv.size());
    dq = unwritten(case_.dtype, q.size());
    const DType of_keys = case_.fp32_key_gradients ? DType::fp32 : case_.dtype;
    dk = unwritten(of_keys, k.size());
    dv = unwritten(of_keys, v.size());
    Array workspace = make_workspace(threads);
    in_lane(threads, [&](Lane& lane) {
      attention_backward(lane, shape_, case_.documents.data(), part(qkv, q, 0), part(qkv, k, k_head()),
                         part(qkv, v, v_head()), o.view(), lse.view(), d_o.view(), part(dqkv, dq, 0),
                         part(dqkv, dk, k_head()), part(dqkv, dv, v_head()), dropout_of(case_), workspace.view());
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

  Array qkv{DType::fp32, 0}, q = qkv, k = qkv, v = qkv, d_o = qkv, o = qkv, lse = qkv, dqkv = qkv, dq = qkv, dk = qkv,
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
  // The workspace starts as NaN, because nothing may rely on its contents.
  Array make_workspace(int threads) const {
    return unwritten(DType::fp32,
                     attention_workspace(kDevice, shape_, case_.dtype, case_.dropout > 0, threads) / sizeof(float) + 1);
  }

  Case case_;
  AttentionShape shape_;
};

inline double roundoff(DType t) {
  return t == DType::fp32 ? 0x1p-24 : t == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

// One rounding to the dtype (fp16: or half the smallest subnormal), and fp32 sums of `terms` terms of about `size`
// each: at worst terms * size * 2^-24, as operands are uniform in (-2, 2). Tensor cores, and CPUs in bf16, use rounded
// probabilities and gradients of scores. That adds one rounding error per term, and the terms' absolute values sum to
// `sizes`.
inline void expect_near(const Doubles& got, const Doubles& want, const Doubles& sizes, DType dtype, double terms,
                        double size, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  const bool rounded = dtype == DType::bf16 || (kDevice.kind == Kind::cuda && dtype == DType::fp16);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = roundoff(dtype) * (std::abs(want[i]) + (rounded ? sizes[i] : 0)) + terms * size * 0x1p-24;
    if (!(std::abs(got[i] - want[i]) <= bound)) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", not " << want[i] << " within " << bound;
      return;
    }
  }
}

inline void expect_reference(const Case& c) {
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

}  // namespace strata::device::testing::attention

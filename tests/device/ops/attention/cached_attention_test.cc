#include "device/cpu/kernels/tables.h"
#include "device/ops/attention/attention.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;
using testing::tolerance;

// Cases: heads that share keys, a head that is not a multiple of a vector, a window, a single head.
const CachedAttentionShape kCachedAttentionShapes[] = {
    {4, 2, 16, 128, 128, 130, 0.25f, 0, 70}, {6, 2, 72, 720, 720, 720, 0.1f, 0, 40},
    {3, 1, 24, 120, 120, 121, 0.2f, 9, 50},  {1, 1, 2, 6, 6, 6, 1.0f, 0, 17},
    {1, 1, 16, 16, 16, 16, 0.25f, 0, 530},  // more than a GPU's kernel takes at a time
};

class CachedAttention : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  const CachedAttentionShape& s = kCachedAttentionShapes[std::get<0>(GetParam())];
  const DType dtype = std::get<1>(GetParam());
  Array q = Array::random(dtype, s.capacity*s.q_stride, 1), k = Array::random(dtype, s.capacity*s.k_stride, 2),
        v = Array::random(dtype, s.capacity*s.v_stride, 3);

  // o at every position if the sequence is read in pieces of `rows`.
  Array run(std::size_t rows, int threads) {
    const std::size_t width = s.heads * s.head_dim;
    Array o(dtype, s.capacity * width), cache(dtype, cache_elements(s)),
        workspace(DType::fp32, cached_attention_workspace(s, threads) / sizeof(float));
    for (std::size_t i = 0; i < cache.size(); ++i) cache.set(i, std::nanf(""));  // what was not written must not count
    in_lane(threads, [&](Lane& lane) {
      for (std::size_t first = 0; first < s.capacity; first += rows) {
        const std::size_t n = std::min(rows, s.capacity - first);
        const auto from = [&](Array& a, std::size_t at) { return a.view().sub(at, a.size() - at); };
        cached_attention(lane, s, first, n, from(q, first * s.q_stride), from(k, first * s.k_stride),
                         from(v, first * s.v_stride), cache.view(), from(o, first * width), workspace.view());
        lane.synchronize();
      }
    });
    return o;
  }
};

TEST_P(CachedAttention, IsAttentionToEveryPositionUpToItsOwn) {
  const Array o = run(5, 2);
  const auto at = [](const Array& a, std::size_t i) { return static_cast<double>(a[i]); };
  for (std::size_t row = 0; row < s.capacity; ++row)
    for (std::size_t head = 0; head < s.heads; ++head) {
      const std::size_t kv = head / (s.heads / s.kv_heads) * s.head_dim,
                        begin = s.window && row >= s.window ? row + 1 - s.window : 0;
      std::vector<double> weight;
      double total = 0;
      for (std::size_t p = begin; p <= row; ++p) {
        double score = 0;
        for (std::size_t e = 0; e < s.head_dim; ++e)
          score += at(q, row * s.q_stride + head * s.head_dim + e) * at(k, p * s.k_stride + kv + e);
        total += weight.emplace_back(std::exp(score * static_cast<double>(s.scale)));
      }
      for (std::size_t e = 0; e < s.head_dim; ++e) {
        double expected = 0;
        for (std::size_t p = begin; p <= row; ++p)
          expected += weight[p - begin] / total * at(v, p * s.v_stride + kv + e);
        // Weights are fp32 exponentials of scores of size up to 10.
        ASSERT_NEAR(o[(row * s.heads + head) * s.head_dim + e], expected, tolerance(dtype, expected, 1, 64))
            << "row " << row << " head " << head;
      }
    }
}

TEST_P(CachedAttention, SameBitsInPiecesOfAnySizeOnAnyThreads) {
  const Array one = run(1, 1);
  EXPECT_TRUE(one == run(1, 3));
  EXPECT_TRUE(one == run(7, 2));
  EXPECT_TRUE(one == run(s.capacity, 3));
}

TEST_P(CachedAttention, SameBitsOnBothInstructionSets) {
  const std::size_t end = 39, width = s.head_dim;
  Array keys = Array::random(dtype, 48 * width, 5), values = Array::random(dtype, 48 * width, 6);
  testing::expect_same_bits_on_both_isas(cpu::avx2::cached_attention_kernels_table,
                                         cpu::avx512::cached_attention_kernels_table,
                                         [&](const cpu::CachedAttentionKernels& kernels) {
                                           Array o(dtype, width), scores(DType::fp32, 48);
                                           kernels.attend[static_cast<std::size_t>(dtype)]({.begin = 3,
                                                                                            .end = end,
                                                                                            .head_dim = width,
                                                                                            .scale = s.scale,
                                                                                            .q = q.data(),
                                                                                            .keys = keys.data(),
                                                                                            .values = values.data(),
                                                                                            .o = o.data(),
                                                                                            .scores = scores.floats()});
                                           return std::vector<Array>{o};
                                         });
}

INSTANTIATE_TEST_SUITE_P(All, CachedAttention,
                         ::testing::Combine(::testing::Range(0, 5), ::testing::ValuesIn(kDTypes)));

}  // namespace
}  // namespace strata::device

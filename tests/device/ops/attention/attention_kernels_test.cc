#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "device/cpu/kernels/attention/attention.h"
#include "device/numeric/philox.h"
#include "tests/device/ops/attention/attention_case.h"

// The CPU's kernels, called directly: one instruction set against another, and tasks of any number of tiles.
namespace strata::device {
namespace {

using namespace testing::attention;
using testing::Array;

// The most tiles that tasks of these kernels have.
cpu::TaskTiles most_tiles(const cpu::AttentionKernels& kernels, const Case& c) {
  const std::size_t padded = (c.head_dim + 15) / 16 * 16;
  const bool amx = &kernels == &cpu::amx::attention_kernels_table && c.dtype == DType::bf16;
  return amx ? cpu::amx_task_tiles(padded) : cpu::task_tiles(padded);
}

// The results of one instruction set's kernels for two query heads that share a key head. Values are multiplied by
// `size`. Tasks have `tiles`.
std::vector<Array> on_instruction_set(const cpu::AttentionKernels& kernels, const Case& c, float size,
                                      const cpu::TaskTiles& tiles) {
  const AttentionRun inputs(c);
  const std::size_t rows = c.seq * c.heads, wide = rows * c.head_dim, narrow = wide / c.heads;
  Array q = inputs.q, k = inputs.k, v = inputs.v, d_o = inputs.d_o;
  for (Array* x : {&v, &d_o})
    for (std::size_t i = 0; i < x->size(); ++i) x->set(i, (*x)[i] * size);
  Array o(c.dtype, wide), lse(DType::fp32, rows), delta(DType::fp32, rows);
  Array dq(c.dtype, wide), dk(c.dtype, narrow), dv(c.dtype, narrow);
  cpu::AttentionCall call{.batch = 1, .seq = c.seq, .heads = 2, .kv_heads = 1, .head_dim = c.head_dim};
  Array dq_sum(DType::fp32, rows * call.padded());
  call.behind = c.shape().behind();
  call.q_stride = 2 * c.head_dim;
  call.k_stride = call.v_stride = c.head_dim;
  call.scale = c.scale();
  call.q = q.data();
  call.k = k.data();
  call.v = v.data();
  call.d_o = d_o.data();
  call.o_read = call.o = o.data();
  call.lse = lse.floats();
  call.delta = delta.floats();
  call.dq_sum = dq_sum.floats();
  call.dq = dq.data();
  call.dk = dk.data();
  call.dv = dv.data();
  std::vector<std::uint32_t> turns(rows);
  const cpu::AttentionRows document{0, 0, c.seq};
  call.turns = turns.data();
  call.random = {1, 2, 3};
  call.threshold = drop_threshold(0.2f);
  call.keep_scale = 1 / 0.8f;
  const auto& [query_tiles, key_tiles] = tiles;
  const std::size_t floats = std::max(cpu::attention_scratch(call.padded(), query_tiles, key_tiles),
                                      cpu::amx_attention_scratch(call.padded(), c.seq, query_tiles, key_tiles));
  constexpr std::size_t kBeyond = 4096;
  Array scratch = testing::attention::unwritten(DType::fp32, floats + kBeyond);
  const auto type = static_cast<std::size_t>(c.dtype);
  const std::size_t forward_rows = std::max<std::size_t>(query_tiles / 2, 1) * cpu::kAttentionTile;
  for (std::size_t row = 0; row < c.seq; row += forward_rows)
    kernels.forward[type](call, document, {0, 2, row, forward_rows}, scratch.floats());
  kernels.delta[type](call, 0, c.seq);
  for (std::size_t row = 0; row < c.seq; row += key_tiles * cpu::kAttentionTile)
    kernels.backward[type](call, document, 0, row, key_tiles, scratch.floats());
  for (std::size_t i = floats; i < floats + kBeyond; ++i)
    EXPECT_TRUE(std::isnan(scratch[i])) << i - floats << " beyond";
  return {o, lse, delta, dq_sum, dq, dk, dv};
}
std::vector<Array> on_instruction_set(const cpu::AttentionKernels& kernels, const Case& c, float size = 1) {
  return on_instruction_set(kernels, c, size, most_tiles(kernels, c));
}

TEST(AttentionKernels, BitsDoNotDependOnTheTilesOfATask) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "only for the CPU's kernels";
  const cpu::AttentionKernels& kernels = cpu::attention_kernels();
  for (const DType dtype : testing::kDTypes) {
    for (const std::size_t head_dim : {16, 64, 80}) {
      for (const std::size_t window : {0, 90}) {
        const Case c{1, 600, 2, 1, head_dim, window, dtype};
        const cpu::TaskTiles most = most_tiles(kernels, c);
        const std::vector<Array> one = on_instruction_set(kernels, c, 1, {2, 1});
        for (const cpu::TaskTiles& tiles : {cpu::TaskTiles{4, 2}, {6, 3}, most})
          EXPECT_TRUE(tiles.backward > most.backward || on_instruction_set(kernels, c, 1, tiles) == one)
              << name_of(dtype) << " head_dim " << head_dim << " window " << window << " key tiles " << tiles.backward;
      }
    }
  }
}

TEST(AttentionKernels, BitsDoNotDependOnInstructionSet) {
  for (const DType dtype : testing::kDTypes)
    testing::expect_same_bits_on_both_isas(cpu::avx2::attention_kernels_table, cpu::avx512::attention_kernels_table,
                                           [&](const cpu::AttentionKernels& kernels) {
                                             return on_instruction_set(kernels, {1, 100, 2, 1, 24, 70, dtype});
                                           });
}

// Bits are the same whether bf16 is multiplied by VDPBF16PS or widened: with odd heads, tiles with an odd number of
// rows, and sums below fp32's normal range, which VDPBF16PS flushes.
TEST(AttentionKernels, BitsOfBf16DoNotDependOnVdpbf16ps) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "only for the CPU's kernels";
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "this processor has no AVX512_BF16";
  for (const auto& [seq, head_dim, window] :
       {std::tuple{1, 1, 0}, {63, 37, 0}, {100, 24, 70}, {201, 64, 0}, {130, 80, 3}}) {
    for (const float size : {1.0f, 1e-18f, 1e-36f}) {
      const Case c{1, std::size_t(seq), 2, 1, std::size_t(head_dim), std::size_t(window), DType::bf16};
      const std::vector<Array> widened = on_instruction_set(cpu::avx512::attention_kernels_table, c, size);
      const std::vector<Array> pairs = on_instruction_set(cpu::avx512_bf16::attention_kernels_table, c, size);
      for (std::size_t i = 0; i < pairs.size(); ++i)
        EXPECT_TRUE(widened[i] == pairs[i])
            << "output " << i << " of seq " << seq << " head_dim " << head_dim << " size " << size;
    }
  }
}

// AMX adds products in another order than the other forms. Its results differ from theirs by at most one bf16 rounding
// of the outputs, the weights and the gradients of scores, and below fp32's normal range by a flushed term per row.
TEST(AttentionKernels, AmxAgreesWithFma) {
  if (testing::kDevice.kind != Kind::cpu) GTEST_SKIP() << "only for the CPU's kernels";
  if (!cpu::has_amx()) GTEST_SKIP() << "this processor has no AMX";
  for (const auto& [seq, head_dim, window] : {std::tuple{1, 1, 0},
                                              {63, 37, 0},
                                              {100, 24, 70},
                                              {201, 64, 0},
                                              {130, 80, 3},
                                              {90, 256, 0},
                                              {65, 16, 0},
                                              // All tiles that a task may have.
                                              {600, 16, 0},
                                              {600, 48, 90},
                                              {600, 64, 0},
                                              {600, 96, 0},
                                              {300, 128, 0},
                                              {300, 240, 0}}) {
    for (const float size : {1.0f, 1e-18f, 1e-36f}) {
      const Case c{1, std::size_t(seq), 2, 1, std::size_t(head_dim), std::size_t(window), DType::bf16};
      const std::vector<Array> widened = on_instruction_set(cpu::avx512::attention_kernels_table, c, size);
      const std::vector<Array> tiles = on_instruction_set(cpu::amx::attention_kernels_table, c, size);
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        float largest = 0, difference = 0;
        for (std::size_t e = 0; e < tiles[i].size(); ++e) {
          ASSERT_TRUE(std::isfinite(tiles[i][e])) << "element " << e << " of output " << i;
          largest = std::max(largest, std::abs(widened[i][e]));
          difference = std::max(difference, std::abs(widened[i][e] - tiles[i][e]));
        }
        EXPECT_LE(difference, 0x1p-7f * largest + 0x1p-126f * static_cast<float>(seq))
            << "output " << i << " of seq " << seq << " head_dim " << head_dim << " size " << size;
      }
    }
  }
}

}  // namespace
}  // namespace strata::device

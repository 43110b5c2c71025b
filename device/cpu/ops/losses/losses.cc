#include "device/ops/losses/losses.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/class_loss_row.h"

namespace strata::device::cpu {

namespace {

// With 2^10 shards there are at most eleven subtrees.
constexpr std::size_t kMaxLevels = 11;

}  // namespace

void softmax_statistics(Lane& lane, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics) {
  const auto* x = tile.logits.as<float>();
  const auto softmax_sum = cross_entropy_kernels().softmax_sum;
  submit(lane, [=](Team& team) {
    for_rows(team, tile.rows, tile.columns, [&](std::size_t r) {
      const float* row = x + r * tile.stride;
      RowStatistics& s = statistics[r];
      if (tile.starts) s = {0.0, -INFINITY, 0.0f};
      if (labels[r] == kIgnoredLabel) return;
      STRATA_CHECK(labels[r] >= 0);
      const SoftmaxSum all = softmax_sum(row, tile.columns, {s.largest, s.sum});
      s.largest = all.largest;
      s.sum = all.sum;
      if (const std::size_t at = static_cast<std::size_t>(labels[r]) - tile.first; at < tile.columns) s.label = row[at];
    });
  });
}

void combine_statistics(Lane& lane, const VocabularyShards& shards, std::size_t rows,
                        const RowStatistics* shard_statistics, const std::int32_t* labels, RowStatistics* statistics) {
  submit(lane, [=](Team&) {
    const std::size_t some = (shards.vocabulary + shards.words - 1) / shards.words;  // shards that have words
    for (std::size_t r = 0; r < rows; ++r) {
      if (labels[r] == kIgnoredLabel) continue;
      float largest = -INFINITY;
      for (std::size_t v = 0; v < some; ++v) largest = std::max(largest, shard_statistics[v * rows + r].largest);
      double waiting[kMaxLevels];  // complete subtrees that wait for their right neighbours
      std::size_t top = 0;
      for (std::size_t v = 0; v < shards.count; ++v) {
        double sum = 0;
        if (v < some) {
          const RowStatistics& s = shard_statistics[v * rows + r];
          // If all logits are -inf, the difference would be NaN.
          sum = s.largest == largest ? s.sum : s.sum * std::exp(double{s.largest} - double{largest});
        }
        for (std::size_t bits = v; bits & 1; bits >>= 1) sum = waiting[--top] + sum;
        waiting[top++] = sum;
      }
      const std::size_t owner = std::min(static_cast<std::size_t>(labels[r]) / shards.words, some - 1);
      statistics[r] = {waiting[0], largest, shard_statistics[owner * rows + r].label};
    }
  });
}

void cross_entropy_losses(Lane& lane, std::size_t vocab, const RowStatistics* statistics, const std::int32_t* labels,
                          View losses) {
  auto* loss = losses.as<float>();
  submit(lane, [=](Team&) {
    for (std::size_t r = 0; r < losses.size; ++r) {
      loss[r] = 0.0f;
      if (labels[r] == kIgnoredLabel) continue;
      STRATA_CHECK_LT(static_cast<std::size_t>(labels[r]), vocab);
      const RowStatistics& s = statistics[r];
      loss[r] = static_cast<float>(std::log(s.sum) + (static_cast<double>(s.largest) - static_cast<double>(s.label)));
    }
  });
}

void cross_entropy_gradient(Lane& lane, const LogitTile& tile, const std::int32_t* labels,
                            const RowStatistics* statistics, const StepScalars* scalars, DType gradient) {
  auto* x = tile.logits.as<float>();
  const auto write_gradient = cross_entropy_kernels().gradient[index(gradient)];
  submit(lane, [=](Team& team) {
    for_rows(team, tile.rows, tile.columns, [&](std::size_t r) {
      float* row = x + r * tile.stride;
      if (labels[r] == kIgnoredLabel) {
        std::memset(row, 0, tile.columns * size_of(gradient));
        return;
      }
      const RowStatistics& s = statistics[r];
      write_gradient(row, tile.columns, s.largest, static_cast<float>(1.0 / s.sum), scalars->loss_gradient,
                     static_cast<std::size_t>(labels[r]) - tile.first);
    });
  });
}

void sum_losses(Lane& lane, ConstView losses, ExactSum* total) {
  const auto* loss = losses.as<float>();
  submit(lane, [=](Team&) {
    double sum = 0;
    for (std::size_t i = 0; i < losses.size; ++i) sum += static_cast<double>(loss[i]);
    total->add(sum);
  });
}

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  const auto* x = scores.as<float>();
  auto* loss = losses.as<float>();
  const std::size_t words = class_set_words(shape.target, shape.classes);
  submit(lane, [=](Team& team) {
    const auto run = [&](auto&& store_in_row) {
      for_rows(team, shape.rows, 16 * shape.classes, [&](std::size_t r) {
        loss[r] = class_loss_of_row(shape, x + r * shape.stride, labels[r], sets + r * words, weights,
                                    d_scores ? scalars->loss_gradient : 0.0f, store_in_row(r));
      });
    };
    if (!d_scores) return run([](std::size_t) { return [](std::size_t, float) {}; });
    visit(d_scores.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* const to = d_scores.as<T>();
      run([=](std::size_t r) {
        return [row = to + r * shape.stride](std::size_t c, float g) { row[c] = from_float<T>(g); };
      });
    });
  });
}

}  // namespace strata::device::cpu

#include "device/ops/losses/cross_entropy.h"

#include <cmath>
#include <cstring>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/losses/cross_entropy.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {

namespace {

// Calls f(row) for each row, with several rows per task.
template <typename F>
void for_rows(Team& team, const LogitTile& tile, F&& f) {
  const std::size_t grain = std::max<std::size_t>(1, kGrain / tile.columns);
  team.for_range(tile.rows, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) f(r);
  });
}

}  // namespace

void softmax_statistics(Lane& lane, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics) {
  const auto* x = tile.logits.as<float>();
  const auto softmax_sum = cross_entropy_kernels().softmax_sum;
  submit(lane, [=](Team& team) {
    for_rows(team, tile, [&](std::size_t r) {
      const float* row = x + r * tile.stride;
      RowStatistics& s = statistics[r];
      if (tile.first == 0) s = {0.0, -INFINITY, 0.0f};
      if (labels[r] == kIgnoredLabel) return;
      STRATA_CHECK(labels[r] >= 0);
      const SoftmaxSum all = softmax_sum(row, tile.columns, {s.largest, s.sum});
      s.largest = all.largest;
      s.sum = all.sum;
      if (const std::size_t at = static_cast<std::size_t>(labels[r]) - tile.first; at < tile.columns) s.label = row[at];
    });
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
    for_rows(team, tile, [&](std::size_t r) {
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

}  // namespace strata::device::cpu

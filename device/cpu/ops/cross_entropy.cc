#include "device/ops/cross_entropy.h"

#include <cmath>
#include <cstring>

#include "device/cpu/kernels/cross_entropy.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {

void cross_entropy(Lane& lane, std::size_t rows, std::size_t vocab, View logits, const std::int32_t* labels,
                   const StepScalars* scalars, DType gradient, View losses) {
  STRATA_CHECK_LE(rows * vocab, logits.size);
  STRATA_CHECK_EQ(losses.size, rows);
  auto* x = logits.as<float>();
  auto* loss = losses.as<float>();
  const auto& kernels = cpu::cross_entropy_kernels();
  const auto softmax_sum = kernels.softmax_sum;
  const auto write_gradient = kernels.gradient[cpu::index(gradient)];
  cpu::submit(lane, [=](cpu::Team& team) {
    const auto one_row = [&](std::size_t r) {
      float* row = x + r * vocab;
      const std::int32_t label = labels[r];
      if (label == kIgnoredLabel) {
        loss[r] = 0.0f;
        if (scalars) std::memset(row, 0, vocab * size_of(gradient));
        return;
      }
      STRATA_CHECK(label >= 0);
      STRATA_CHECK_LT(static_cast<std::size_t>(label), vocab);
      const cpu::SoftmaxSum s = softmax_sum(row, vocab);
      const double distance = static_cast<double>(s.largest) - static_cast<double>(row[label]);
      loss[r] = static_cast<float>(std::log(s.sum) + distance);
      if (scalars)
        write_gradient(row, vocab, s.largest, static_cast<float>(1.0 / s.sum), scalars->loss_gradient,
                       static_cast<std::size_t>(label));
    };
    team.for_range(rows, std::max<std::size_t>(1, cpu::kGrain / vocab), [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) one_row(r);
    });
  });
}

void sum_losses(Lane& lane, ConstView losses, ExactSum* total) {
  const auto* loss = losses.as<float>();
  cpu::submit(lane, [=](cpu::Team&) {
    double sum = 0;
    for (std::size_t i = 0; i < losses.size; ++i) sum += static_cast<double>(loss[i]);
    total->add(sum);
  });
}

}  // namespace strata::device

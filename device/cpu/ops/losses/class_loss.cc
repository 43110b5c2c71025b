#include "device/ops/losses/class_loss.h"

#include <algorithm>

#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"
#include "device/numeric/class_loss_row.h"

namespace strata::device::cpu {

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

#include "device/ops/losses/class_loss.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/grain.h"
#include "device/cpu/lane_impl.h"
#include "device/numeric/class_loss_row.h"

namespace strata::device::cpu {
namespace {

// y[i] = f(a[i], b[i]), in fp32.
template <typename F>
void map(Lane& lane, ConstView a, ConstView b, View y, F f) {
  submit(lane, [=](Team& team) {
    visit(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T *from = a.as<T>(), *other = b.as<T>();
      T* to = y.as<T>();
      team.for_range(y.size, kGrain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) to[i] = from_float<T>(f(to_float(from[i]), to_float(other[i])));
      });
    });
  });
}

}  // namespace

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  const auto* x = scores.as<float>();
  auto* loss = losses.as<float>();
  const std::size_t words = class_set_words(shape.target, shape.classes);
  submit(lane, [=](Team& team) {
    const auto run = [&](auto&& store_in_row) {
      const std::size_t grain = std::max<std::size_t>(1, kGrain / (16 * shape.classes));
      team.for_range(shape.rows, grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r)
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

void tanh_forward(Lane& lane, ConstView x, View y) {
  map(lane, x, x, y, [](float a, float) { return std::tanh(a); });
}

void tanh_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  map(lane, dy, y, dx, [](float d, float t) { return d * std::fma(-t, t, 1.0f); });
}

void relu_forward(Lane& lane, ConstView x, View y) {
  map(lane, x, x, y, [](float a, float) { return a < 0 ? 0.0f : a; });
}

void relu_backward(Lane& lane, ConstView dy, ConstView y, View dx) {
  map(lane, dy, y, dx, [](float d, float r) { return r > 0 ? d : 0.0f; });
}

}  // namespace strata::device::cpu

#include <gtest/gtest.h>

#include "device/ops/activation.h"
#include "device/ops/attention/attention.h"
#include "device/ops/elementwise.h"
#include "device/ops/embedding.h"
#include "tests/device/arrays.h"

// A view may start at any element. An operation gives the same bits wherever its operands lie, even if rows are not a
// multiple of the processor's vectors.
namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;

// An array whose view starts `shift` elements after an aligned address.
class Shifted {
 public:
  Shifted(DType dtype, std::size_t size, std::size_t shift, unsigned seed)
      : all_(dtype, size + shift), size_(size), shift_(shift) {
    const Array values = Array::random(dtype, size, seed, 3.0f);
    for (std::size_t i = 0; i < size; ++i) all_.set(shift + i, values[i]);
  }
  View view() { return all_.view().sub(shift_, size_); }
  std::vector<float> values() const {
    std::vector<float> out(size_);
    for (std::size_t i = 0; i < size_; ++i) out[i] = all_[shift_ + i];
    return out;
  }

 private:
  Array all_;
  std::size_t size_, shift_;
};

// run(shift) returns what it computed from operands that start `shift` elements further on.
template <typename Run>
void expect_same_values_anywhere(Run&& run) {
  const auto aligned = run(0);
  for (const std::size_t shift : {1, 2, 4}) EXPECT_EQ(run(shift), aligned) << "shifted by " << shift;
}

class Alignment : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Alignment, ::testing::ValuesIn(testing::kDTypes),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

TEST_P(Alignment, DoesNotAffectElementwiseOperations) {
  for (const std::size_t n : {std::size_t{3}, std::size_t{8 * 1024 + 5}})
    expect_same_values_anywhere([&](std::size_t shift) {
      Shifted x(GetParam(), n, shift, 1), y(GetParam(), n, shift, 2), dx(GetParam(), n, shift, 3);
      Shifted sum(DType::fp32, n, shift, 4), dropped(GetParam(), n, shift, 5), other(DType::bf16, n, shift, 6);
      const StepScalars scalars{.seed = 7};
      in_lane(1, [&](Lane& lane) {
        cast(lane, x.view(), other.view());
        add(lane, x.view(), sum.view());
        activation_backward(lane, Activation::gelu_tanh, y.view(), x.view(), dx.view());
        dropout(lane, {0.3f, 1, 0, &scalars}, x.view(), y.view(), dropped.view());
        activation_forward(lane, Activation::gelu_tanh, x.view(), y.view());
      });
      return std::vector{other.values(), sum.values(), dx.values(), dropped.values(), y.values()};
    });
}

TEST_P(Alignment, DoesNotAffectRowOperations) {
  for (const std::size_t width : {std::size_t{6}, std::size_t{40}, std::size_t{64}})
    expect_same_values_anywhere([&](std::size_t shift) {
      const std::size_t rows = 70;
      Shifted gate_up(GetParam(), 2 * rows * width, shift, 1), y(GetParam(), rows * width, shift, 2);
      Shifted d(GetParam(), 2 * rows * width, shift, 3), sums(GetParam(), width, shift, 4);
      Shifted gated(GetParam(), rows * width, shift, 7), d_gated(GetParam(), 2 * rows * width, shift, 8);
      Shifted turned(GetParam(), rows * width, shift, 5), angles(DType::fp32, rows * width / 2, shift, 6);
      Array workspace(DType::fp32, column_sum_workspace(rows, width) / sizeof(float));
      std::vector<std::uint32_t> positions(rows);
      for (std::size_t i = 0; i < rows; ++i) positions[i] = static_cast<std::uint32_t>(i * 7 % rows);
      in_lane(1, [&](Lane& lane) {
        column_sum(lane, rows, width, 2 * width, gate_up.view(), sums.view(), workspace.view());
        gated_forward(lane, Gate::silu, rows, width, gate_up.view(), y.view());
        gated_backward(lane, Gate::silu, rows, width, y.view(), gate_up.view(), d.view());
        gated_forward(lane, Gate::gelu_erf, rows, width, gate_up.view(), gated.view());
        gated_backward(lane, Gate::gelu_erf, rows, width, gated.view(), gate_up.view(), d_gated.view());
        rope(lane, {rows, 1, width, width}, turned.view(), positions.data(), angles.view(), angles.view(), false);
      });
      return std::vector{sums.values(), y.values(), d.values(), gated.values(), d_gated.values(), turned.values()};
    });
}

TEST_P(Alignment, DoesNotAffectEmbeddings) {
  for (const std::size_t width : {std::size_t{6}, std::size_t{24}})
    expect_same_values_anywhere([&](std::size_t shift) {
      const std::size_t rows = 100, vocab = 60;
      Shifted table(GetParam(), vocab * width, shift, 1), out(GetParam(), rows * width, shift, 2);
      Shifted d(GetParam(), vocab * width, shift, 3), d_wide(DType::fp32, vocab * width, shift, 4);
      Array workspace(DType::fp32, embedding_backward_workspace(rows, vocab) / sizeof(float));
      std::vector<std::uint32_t> indices(rows);
      for (std::size_t i = 0; i < rows; ++i) indices[i] = static_cast<std::uint32_t>(i * i % vocab);
      const TableRows all{0, vocab, vocab};
      in_lane(1, [&](Lane& lane) {
        embedding_forward(lane, rows, width, indices.data(), all, table.view(), out.view());
        embedding_add(lane, rows, width, indices.data(), table.view(), out.view());
        embedding_backward(lane, rows, width, indices.data(), all, out.view(), d.view(), workspace.view());
        embedding_backward(lane, rows, width, indices.data(), all, out.view(), d_wide.view(), workspace.view());
      });
      return std::vector{out.values(), d.values(), d_wide.values()};
    });
}

}  // namespace
}  // namespace strata::device

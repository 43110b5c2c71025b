#include "runtime/weights/adapter/row_norms.h"

#include <algorithm>
#include <cmath>

namespace strata::runtime {

std::vector<double> row_norms(const MatrixShape& shape, std::size_t first, std::size_t count,
                              const std::function<void(std::size_t, std::span<float>)>& read) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;
  const auto [rows, columns, input_major] = shape;
  std::vector<double> squares(count);
  std::vector<float> values;
  const std::size_t begin = input_major ? 0 : first * columns;
  const std::size_t end = input_major ? rows * columns : (first + count) * columns;
  for (std::size_t at = begin; at < end; at += values.size()) {
    values.resize(std::min(kAtOnce, end - at));
    read(at, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t row = input_major ? (at + i) % rows : (at + i) / columns;
      if (row >= first && row < first + count) squares[row - first] += double{values[i]} * values[i];
    }
  }
  std::ranges::transform(squares, squares.begin(), [](double square) { return std::sqrt(square); });
  return squares;
}

}  // namespace strata::runtime

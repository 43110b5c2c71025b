#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace strata::runtime {

// A matrix [rows, columns], or stored as [columns, rows].
struct MatrixShape {
  std::size_t rows, columns;
  bool input_major;
};
// The lengths of `count` rows from `first`, in double precision. read(at, values): elements of the matrix from `at`.
std::vector<double> row_norms(const MatrixShape& shape, std::size_t first, std::size_t count,
                              const std::function<void(std::size_t at, std::span<float> values)>& read);

}  // namespace strata::runtime

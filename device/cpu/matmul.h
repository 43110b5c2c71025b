#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/numeric/dtype.h"

namespace strata::device::cpu {

// c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ c): one tile of a product. Elements of a are a_row apart down a column and
// a_column apart along a row (one of the two is 1), and likewise for b. c is row-major.
struct MatmulShape {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_row, b_column, c_row;
  DType in = DType::fp32, out = DType::fp32;  // fp32 or bf16
  bool bias = false, accumulate = false;
};

// A oneDNN matrix product of one shape, which several workers can run at the same time, each single-threaded. Created
// at set-up. Throws an Error{failed} that names the shape if the library refuses it.
class Matmul {
 public:
  explicit Matmul(const MatmulShape& shape);
  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  // The bytes of `scratch` that one worker needs, 64-byte aligned.
  std::size_t scratch_bytes() const;

  // One worker's handles for the operands: the library takes operands only as its own objects.
  class Worker;
  struct DeleteWorker {
    void operator()(Worker*) const;
  };
  using WorkerPtr = std::unique_ptr<Worker, DeleteWorker>;
  WorkerPtr make_worker() const;

  void run(Worker& worker, const void* a, const void* b, const void* bias, void* c, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::device::cpu

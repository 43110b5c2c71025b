#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/numeric/dtype.h"

namespace strata::device::cpu {

// c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ c): one tile of a product. Elements of a lie a_row apart down a column and
// a_column apart along a row (one of the two is 1); b alike; c is row-major.
struct MatmulShape {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_row, b_column, c_row;
  DType in = DType::fp32, out = DType::fp32;  // fp32 or bf16
  bool bias = false, accumulate = false;
};

// A oneDNN matrix product of one shape that each of several workers runs single-threaded. Made at set-up; throws
// Error{failed} naming the shape if the library refuses it.
class Matmul {
 public:
  explicit Matmul(const MatmulShape& shape);
  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  // Bytes that one worker's `scratch` needs, 64-byte aligned.
  std::size_t scratch_bytes() const;
  // What the library calls its implementation, for benchmarks and `doctor`.
  const char* implementation() const;

  // The operands' handles of one worker: the library keeps them in objects of its own.
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

#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "device/algorithm_table.h"
#include "device/cuda/libraries/cublaslt.h"
#include "device/product_impl.h"

namespace strata::device::cuda {

// Scratch that any product may use, known without a GPU: what NVIDIA advises for Hopper.
inline constexpr std::size_t kMatmulWorkspace = std::size_t{32} << 20;

// A product as cuBLASLt knows it: descriptions, and the algorithm once one is chosen.
//
// Row-major matrices are column-major ones transposed: C = op(A) op(B) is computed as C^T = op(B)^T op(A)^T, where B's
// and A's storage are the library's first and second operand, transposed where they are here, C is n by m, and the bias
// goes down its columns. Sums are fp32: CUBLAS_COMPUTE_32F, which takes fp32 operands as they are (no TF32) and
// multiplies bf16 and fp16 exactly. Only algorithms whose bits are the same in every run: the sums of a split k are
// added up in a fixed order, in fp32, from the workspace (not "in place", which rounds to C's type each time).
//
// With gelu, D is the activation, and C the auxiliary output; with its gradient, D is C, and what gelu was applied to
// is the auxiliary input. Sums of the operands are the library's bias gradients, of its first operand (our B) or
// second.
class Matmul {
 public:
  // The library takes the epilogue along for this key at all, having one.
  static bool fuses(const AlgorithmKey& key);
  // `handle` outlives it.
  Matmul(cublasLtHandle_t handle, const AlgorithmKey& key);

  // The library's proposals, `most` of them at most, those that it thinks fastest first.
  std::vector<std::string> candidates(int most) const;
  // False: the library refuses it, being of another version or GPU.
  bool choose(const std::string& algorithm);

  // bias is of C's type; workspace has kMatmulWorkspace bytes, 256-byte aligned.
  void run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias, std::byte* workspace) const;
  // False: the library refuses it only now.
  bool try_run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
               std::byte* workspace) const;

 private:
  cublasStatus_t issue(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
                       std::byte* workspace) const;
  void set(cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes) const;
  void check(cublasStatus_t status, const char* call) const;

  cublasLtHandle_t handle_;
  AlgorithmKey key_;
  CublasLtOwner<cublasLtMatmulDesc_t> description_;
  CublasLtOwner<cublasLtMatrixLayout_t> first_, second_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace strata::device::cuda

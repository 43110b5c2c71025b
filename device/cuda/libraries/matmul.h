#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/algorithm_table.h"
#include "device/cuda/libraries/cublaslt.h"
#include "device/product_impl.h"

namespace strata::device::cuda {

// Scratch that any product may use, known without a GPU: NVIDIA's recommendation for Hopper.
inline constexpr std::size_t kMatmulWorkspace = std::size_t{32} << 20;

// A product in cuBLASLt's terms: descriptions, and the algorithm once one is chosen.
//
// Row-major matrices are transposed column-major ones: C = op(A) op(B) is computed as C^T = op(B)^T op(A)^T. B's
// storage is the library's first operand and A's the second, each transposed if the product transposes it. C is n by m,
// and the bias goes down its columns. Sums are fp32: CUBLAS_COMPUTE_32F takes fp32 operands as they are (no TF32) and
// multiplies bf16 and fp16 exactly. Only algorithms with the same bits in every run are used: the sums of a split k are
// added in a fixed order, in fp32, from the workspace (not "in place", which rounds to C's type each time). With a
// bias, k is not split.
//
// With gelu, D is the activation, and C the auxiliary output. With its gradient, D is C, and the input of gelu is the
// auxiliary input. Sums of the operands are the library's bias gradients, of its first operand (our B) or second.
class Matmul {
 public:
  // True if the library has this key's epilogue at all.
  static bool fuses(const AlgorithmKey& key);
  // `handle` must outlive it.
  Matmul(cublasLtHandle_t handle, const AlgorithmKey& key);

  // At most `most` of the library's proposals, in the order of its own speed estimates, fastest first.
  std::vector<std::string> candidates(int most) const;
  // Returns false if the library refuses the algorithm, which is then for another version or GPU.
  bool choose(const std::string& algorithm);

  // bias has C's type; workspace has kMatmulWorkspace bytes, 256-byte aligned.
  void run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias, std::byte* workspace) const;
  // Returns false if the library refuses the algorithm only when it runs.
  bool try_run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
               std::byte* workspace) const;

 private:
  cublasStatus_t issue(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
                       std::byte* workspace) const;
  void set(cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes) const;
  void check(cublasStatus_t status, const char* call) const;
  std::uint32_t alignment_of_output() const;

  cublasLtHandle_t handle_;
  AlgorithmKey key_;
  CublasLtOwner<cublasLtMatmulDesc_t> description_;
  CublasLtOwner<cublasLtMatrixLayout_t> first_, second_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace strata::device::cuda

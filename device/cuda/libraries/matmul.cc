#include "device/cuda/libraries/matmul.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace strata::device::cuda {
namespace {

static_assert(std::is_trivially_copyable_v<cublasLtMatmulAlgo_t>);

cudaDataType_t cuda_type(DType t) {
  return t == DType::fp32 ? CUDA_R_32F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

CublasLtOwner<cublasLtMatrixLayout_t> layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                                             const AlgorithmKey& key) {
  cublasLtMatrixLayout_t out = nullptr;
  check_cublaslt(cublaslt().cublasLtMatrixLayoutCreate(&out, cuda_type(dtype), static_cast<std::uint64_t>(rows),
                                                       static_cast<std::uint64_t>(columns), leading),
                 "cublasLtMatrixLayoutCreate", key.text());
  return CublasLtOwner<cublasLtMatrixLayout_t>(out);
}

bool has_auxiliary(Epilogue epilogue) {
  return epilogue == Epilogue::gelu_tanh || epilogue == Epilogue::gelu_tanh_gradient;
}

bool has_sums(Epilogue epilogue) {
  return epilogue == Epilogue::sums_a || epilogue == Epilogue::sums_b;
}

cublasLtEpilogue_t epilogue_of(const ProductShape& s) {
  switch (s.epilogue) {
    case Epilogue::none:
      return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::gelu_tanh:
      return s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_tanh_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::sums_a:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Epilogue::sums_b:
      return CUBLASLT_EPILOGUE_BGRADA;
    case Epilogue::gelu_erf:  // see fuses()
    case Epilogue::gelu_erf_gradient:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

bool Matmul::fuses(const AlgorithmKey& key) {
  const ProductShape& s = key.shape;
  if (s.epilogue == Epilogue::none) return true;
  // The library's gelu is the tanh approximation.
  if (s.epilogue == Epilogue::gelu_erf || s.epilogue == Epilogue::gelu_erf_gradient) return false;
  // Bias and its gradient share one argument. The auxiliary matrix's rows must be multiples of 8 elements.
  if (s.in != s.out || (s.bias && s.epilogue != Epilogue::gelu_tanh)) return false;
  return !has_auxiliary(s.epilogue) || (s.ldc % 8 == 0 && key.alignment >= 16);
}

Matmul::Matmul(cublasLtHandle_t handle, const AlgorithmKey& key) : handle_(handle), key_(key) {
  const ProductShape& s = key.shape;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublaslt().cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  description_.reset(description);

  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cublasOperation_t first = operation(s.transpose_b), second = operation(s.transpose_a);
  set(CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  set(CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  first_ = s.transpose_b ? layout(s.in, s.k, s.n, s.ldb, key) : layout(s.in, s.n, s.k, s.ldb, key);
  second_ = s.transpose_a ? layout(s.in, s.m, s.k, s.lda, key) : layout(s.in, s.k, s.m, s.lda, key);
  out_ = layout(s.out, s.n, s.m, s.ldc, key);

  const cublasLtEpilogue_t epilogue = epilogue_of(s);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  // The heuristic derives a pointer's alignment from its value, and refuses an alignment below that of the pointer's
  // type.
  const std::uintptr_t address = 0x10000u + alignment_of_output();
  if (s.bias || has_sums(s.epilogue)) {
    const cudaDataType_t type = cuda_type(s.out);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address, sizeof address);
  }
  if (has_auxiliary(s.epilogue)) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s.ldc, sizeof s.ldc);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &address, sizeof address);
  }
}

// The key has one alignment for all operands. With narrow inputs, it may be below the alignment of an fp32 output.
std::uint32_t Matmul::alignment_of_output() const {
  return std::max(static_cast<std::uint32_t>(key_.alignment), static_cast<std::uint32_t>(size_of(key_.shape.out)));
}

void Matmul::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) check_cublaslt(status, call, key_.text());
}

void Matmul::set(cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes) const {
  check(cublaslt().cublasLtMatmulDescSetAttribute(description_.get(), attribute, value, bytes),
        "cublasLtMatmulDescSetAttribute");
}

std::vector<std::string> Matmul::candidates(int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublaslt().cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const CublasLtOwner<cublasLtMatmulPreference_t> preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublaslt().cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMatmulWorkspace});
  // After a split k the library rounds the sum to C's type before it adds a bias, and then once more.
  const auto reduction = key_.shape.bias ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(reduction));
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES})
    prefer(operand, static_cast<std::uint32_t>(key_.alignment));
  for (const auto output : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(output, alignment_of_output());

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      cublaslt().cublasLtMatmulAlgoGetHeuristic(handle_, description_.get(), first_.get(), second_.get(), out_.get(),
                                                out_.get(), preference.get(), most, results.data(), &found);
  // The library reports "invalid value" too if it lacks the epilogue for these types.
  const bool none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                    (status == CUBLAS_STATUS_INVALID_VALUE && key_.shape.epilogue != Epilogue::none);
  if (none) found = 0;
  if (!none) check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<std::string> out;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& r = results[static_cast<std::size_t>(i)];
    if (r.state == CUBLAS_STATUS_SUCCESS && r.workspaceSize <= kMatmulWorkspace)
      out.emplace_back(reinterpret_cast<const char*>(&r.algo), sizeof r.algo);
  }
  return out;
}

bool Matmul::choose(const std::string& algorithm) {
  if (algorithm.size() != sizeof algorithm_) return false;
  std::memcpy(&algorithm_, algorithm.data(), sizeof algorithm_);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoCheck(
      handle_, description_.get(), first_.get(), second_.get(), out_.get(), out_.get(), &algorithm_, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kMatmulWorkspace;
}

void Matmul::run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
                 std::byte* workspace) const {
  check(issue(stream, x, bias, workspace), "cublasLtMatmul");
}

bool Matmul::try_run(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
                     std::byte* workspace) const {
  return issue(stream, x, bias, workspace) == CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Matmul::issue(cudaStream_t stream, const Product::Impl::Operands& x, const std::byte* bias,
                             std::byte* workspace) const {
  const float one = 1, beta = key_.shape.accumulate ? 1 : 0;
  const Epilogue epilogue = key_.shape.epilogue;
  const bool gelu = epilogue == Epilogue::gelu_tanh;
  const std::byte* const vector = has_sums(epilogue) ? x.epilogue_out.data : bias;
  const std::byte* const auxiliary = gelu ? x.c.data : x.epilogue_in.data;
  if (vector) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
  if (has_auxiliary(epilogue)) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &auxiliary, sizeof auxiliary);
  std::byte* const out = gelu ? x.epilogue_out.data : x.c.data;
  return cublaslt().cublasLtMatmul(handle_, description_.get(), &one, x.b.data, first_.get(), x.a.data, second_.get(),
                                   &beta, out, out_.get(), out, out_.get(), &algorithm_, workspace, kMatmulWorkspace,
                                   stream);
}

}  // namespace strata::device::cuda

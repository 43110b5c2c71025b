#pragma once
#include <cublasLt.h>

#include <memory>
#include <string>

namespace strata::device::cuda {

// The cuBLASLt functions that Strata calls. The library is loaded at the first call. Throws Error{usage}: see
// Library::open.
// clang-format off
#define STRATA_CUBLASLT_FUNCTIONS(X) \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetStatusName) X(cublasLtGetVersion) X(cublasLtMatmul) \
  X(cublasLtMatmulAlgoCheck) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatmulPreferenceCreate) \
  X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy)
// clang-format on
struct CublasLt {
#define X(name) decltype(::name)* name;  // NOLINT(bugprone-macro-parentheses)
  STRATA_CUBLASLT_FUNCTIONS(X)
#undef X
};
const CublasLt& cublaslt();

// Throws an Error{failed} with the call, its product and the status.
void check_cublaslt(cublasStatus_t status, const char* call, const std::string& product);

// Owners of the library's objects.
struct DestroyCublasLt {
  void operator()(cublasLtHandle_t p) const noexcept { (void)cublaslt().cublasLtDestroy(p); }
  void operator()(cublasLtMatmulDesc_t p) const noexcept { (void)cublaslt().cublasLtMatmulDescDestroy(p); }
  void operator()(cublasLtMatrixLayout_t p) const noexcept { (void)cublaslt().cublasLtMatrixLayoutDestroy(p); }
  void operator()(cublasLtMatmulPreference_t p) const noexcept { (void)cublaslt().cublasLtMatmulPreferenceDestroy(p); }
};
template <typename Pointer>
using CublasLtOwner = std::unique_ptr<std::remove_pointer_t<Pointer>, DestroyCublasLt>;
using CublasLtHandle = CublasLtOwner<cublasLtHandle_t>;

// Creates a handle for the current device.
CublasLtHandle make_cublaslt_handle();

}  // namespace strata::device::cuda

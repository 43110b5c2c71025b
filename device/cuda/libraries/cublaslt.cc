#include "device/cuda/libraries/cublaslt.h"

#include "base/error.h"
#include "device/cuda/libraries/library.h"

namespace strata::device::cuda {

const CublasLt& cublaslt() {
  static const CublasLt functions = [] {
    const Library library = Library::open(cublaslt_name());
    CublasLt f{};
#define X(name) f.name = library.function<decltype(::name)>(#name);
    STRATA_CUBLASLT_FUNCTIONS(X)
#undef X
    return f;
  }();
  return functions;
}

void check_cublaslt(cublasStatus_t status, const char* call, const std::string& product) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  int ordinal = 0;
  (void)cudaGetDevice(&ordinal);
  fail(Exit::failed, "{} for the product {} on GPU {}: {}", call, product, ordinal,
       cublaslt().cublasLtGetStatusName(status));
}

CublasLtHandle make_cublaslt_handle() {
  cublasLtHandle_t handle = nullptr;
  check_cublaslt(cublaslt().cublasLtCreate(&handle), "cublasLtCreate", "of any shape");
  return CublasLtHandle(handle);
}

}  // namespace strata::device::cuda

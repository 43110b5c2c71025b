#include "comm/nccl_library.h"

#include "device/cuda/library.h"
#include "device/error.h"

namespace strata::comm {

const Nccl& nccl() {
  static const Nccl functions = [] {
    const auto library = device::cuda::Library::open(device::cuda::nccl_name());
    Nccl f{};
#define X(name) f.name = library.function<decltype(::name)>(#name);
    STRATA_NCCL_FUNCTIONS(X)
#undef X
    return f;
  }();
  return functions;
}

std::string nccl_version() {
  int version = 0;
  if (const ncclResult_t result = nccl().ncclGetVersion(&version); result != ncclSuccess)
    fail(Exit::failed, "ncclGetVersion: {}", nccl().ncclGetErrorString(result));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace strata::comm

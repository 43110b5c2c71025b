#include "comm/nccl/library.h"

#include "base/error.h"
#include "device/cuda/libraries/library.h"

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
  std::string text = device::cuda::library_version_text(static_cast<std::size_t>(version));
  if (version < NCCL_VERSION(2, 22, 0))
    fail(Exit::usage, "the NCCL found here is {}, which cannot end a run that hangs: install 2.22 or newer", text);
  return text;
}

}  // namespace strata::comm

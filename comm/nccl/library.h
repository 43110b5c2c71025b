#pragma once
#include <nccl.h>

#include <string>

namespace strata::comm {

// The NCCL functions that Strata calls, from the library found at the first call. Throws Error{usage}: see
// device::cuda::Library::open.
// clang-format off
#define STRATA_NCCL_FUNCTIONS(X) \
  X(ncclAllGather) X(ncclBroadcast) X(ncclCommAbort) X(ncclCommDeregister) X(ncclCommDestroy) X(ncclCommFinalize) \
  X(ncclCommGetAsyncError) X(ncclCommInitRankConfig) X(ncclCommRegister) X(ncclGetErrorString) \
  X(ncclGetLastError) X(ncclGetUniqueId) X(ncclGetVersion) X(ncclGroupEnd) X(ncclGroupStart) X(ncclRecv) \
  X(ncclSend)
// clang-format on
struct Nccl {
#define X(name) decltype(::name)* name;
  STRATA_NCCL_FUNCTIONS(X)
#undef X
};
const Nccl& nccl();

// "2.28.9". Throws Error{usage} for a version before 2.22. Since 2.22, NCCL can end several hung communicators by
// aborting them in a group. Older versions wait for one to end before they stop the next.
std::string nccl_version();

}  // namespace strata::comm

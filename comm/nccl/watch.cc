#include "comm/nccl/watch.h"

#include <exception>
#include <string>
#include <vector>

#include "base/thread.h"
#include "comm/nccl/library.h"
#include "device/cuda/context.h"

namespace strata::comm {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

}  // namespace

NcclWatch::NcclWatch(World& world, device::Device device, std::chrono::milliseconds timeout)
    : world_(world),
      device_(device),
      timeout_(timeout),
      thread_(start_thread("the thread that watches NCCL", [this] { run(); })) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void NcclWatch::add(NcclWatched& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.insert(&communicator);
}

void NcclWatch::remove(NcclWatched& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.erase(&communicator);
}

void NcclWatch::abort_all() noexcept {
  (void)cudaSetDevice(device_.ordinal);
  const std::lock_guard lock(mutex_);
  abort_all_locked();
}

// Aborts all communicators in one group, which stops every one of them before it frees the first: to free one, NCCL may
// wait for the whole GPU, and so for the hung kernel of another (NVIDIA/nccl#1013). The ncclComm_t are taken from the
// communicators beforehand, so that a host thread that polls one does not wait for this.
void NcclWatch::abort_all_locked() noexcept {
  std::vector<ncclComm_t> taken;
  for (NcclWatched* communicator : communicators_)
    if (ncclComm_t const comm = communicator->take()) taken.push_back(comm);
  if (taken.empty()) return;
  (void)nccl().ncclGroupStart();
  for (ncclComm_t const comm : taken) (void)nccl().ncclCommAbort(comm);
  (void)nccl().ncclGroupEnd();
}

void NcclWatch::look() {
  world_.check_peers();
  for (NcclWatched* communicator : communicators_)
    if (const std::string failure = communicator->find_failure(timeout_); !failure.empty())
      world_.abort_token().set({world_.rank(), failure, Exit::failed});
}

void NcclWatch::run() {
  (void)cudaSetDevice(
      device_.ordinal);  // otherwise CUDA would initialise the first GPU for this thread; later, the call may block
  std::unique_lock lock(mutex_);
  while (!woken_.wait_for(lock, kPollInterval, [&] { return stop_; })) {
    try {
      look();
    } catch (const std::exception& error) {
      world_.abort_token().set({world_.rank(), error.what(), exit_code(error)});
    }
    if (world_.abort_token().is_set()) abort_all_locked();
  }
}

}  // namespace strata::comm

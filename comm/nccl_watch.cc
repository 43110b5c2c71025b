#include "comm/nccl_watch.h"

#include <chrono>
#include <string>

#include "comm/nccl_communicator.h"

namespace strata::comm {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);
// For one collective: a rank may read its data, or write its part of a checkpoint, while the others wait for it.
constexpr auto kPatience = std::chrono::seconds(600);

}  // namespace

NcclWatch::NcclWatch(World& world) : world_(world), thread_([this] { look_after(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void NcclWatch::add(NcclCommunicator& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.insert(&communicator);
}

void NcclWatch::remove(NcclCommunicator& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.erase(&communicator);
}

void NcclWatch::look_after() {
  device::AbortToken& token = world_.abort_token();
  std::unique_lock lock(mutex_);
  while (!woken_.wait_for(lock, kLook, [&] { return stop_; })) {
    world_.look_after_peers();
    for (NcclCommunicator* communicator : communicators_)
      if (const std::string trouble = communicator->trouble(kPatience); !trouble.empty())
        token.set({world_.rank(), trouble, Exit::failed});
    if (token.is_set())
      for (NcclCommunicator* communicator : communicators_) communicator->abort();
  }
}

}  // namespace strata::comm

#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/levels.h"
#include "comm/nccl/watch.h"
#include "device/cuda/flags.h"

namespace strata::comm {

// NCCL's collectives on one CUDA lane. Non-blocking: calls return while NCCL is still connecting, and are polled along
// with the run's abort token. Owns the ncclComm_t, which the watch takes away to abort it. Unless the run was aborted,
// destroy it after a synchronize() of the lane, or after the lane.
class NcclCommunicator final : public Communicator, public NcclWatched {
 public:
  // Collective: all ranks of the group call it with the same id. The watch must outlive the communicator, and the lane
  // must outlive its work. `nodes` is the result of World::nodes().
  NcclCommunicator(NcclWatch& watch, device::Lane& lane, const Group& group, const ncclUniqueId& id,
                   std::span<const int> nodes = {});
  // Collective, unless the run was aborted or an exception unwinds this rank: then it aborts, together with all other
  // communicators of the watch.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  device::Lane& lane() const override { return lane_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) override;
  void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                  const std::byte** pieces) override;
  void release() override {}
  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override;
  void broadcast(std::byte* data, std::size_t bytes, int root) override;
  void send(const std::byte* data, std::size_t bytes, int to) override;
  void receive(std::byte* data, std::size_t bytes, int from) override;
  CommBytes sent() const override { return sent_; }

  // Lets NCCL send from and receive into this memory without a copy. Between nodes, the network must support it. Within
  // a node, NCCL would need memory from its own allocator. False if NCCL refuses. Either all ranks register, or none.
  bool register_buffers(std::span<std::byte> buffers);
  void deregister_buffers();

  std::string find_failure(std::chrono::milliseconds timeout) override;
  ncclComm_t take() override;

 private:
  using Clock = std::chrono::steady_clock;

  NcclCommunicator(NcclWatch& watch, device::Lane& lane, const Group& group, std::span<const int> nodes);
  std::uint64_t others() const { return static_cast<std::uint64_t>(size_ - 1); }

  // Calls f(comm) while the watch cannot free the ncclComm_t. Throws Aborted if the watch has taken it.
  template <typename F>
  ncclResult_t with_comm(const F& f);
  // Issues the calls that calls(comm) makes as one collective, until the first failure.
  template <typename F>
  void issue(const char* call, std::size_t bytes, const F& calls);
  // Waits until NCCL has accepted a call. Throws NCCL's error.
  void complete(ncclResult_t result, const char* call, std::size_t bytes);
  std::string explain(ncclResult_t result);
  void finalize() noexcept;

  NcclWatch& watch_;
  device::Lane& lane_;
  // The lane may be destroyed before the communicator; these are needed until then.
  const device::Device device_;
  AbortToken& token_;
  const std::string name_;
  cudaStream_t const stream_;
  const int rank_, size_;
  const std::vector<int> places_;
  const Levels levels_;
  const int exceptions_;  // the number being unwound when this object was created
  void* registered_ = nullptr;
  ncclComm_t connecting_ = nullptr;  // NCCL's own thread writes it again when it has connected, so no other code does
  CommBytes sent_;

  const device::cuda::Flag ended_;  // the number of collectives that the device has completed

  std::mutex mutex_;  // guards everything below
  ncclComm_t comm_ = nullptr;
  std::uint64_t issued_ = 0, seen_ = 0;  // collectives issued, and completed when find_failure() last looked
  Clock::time_point since_;              // when find_failure() last saw one complete, or none in flight
};

}  // namespace strata::comm

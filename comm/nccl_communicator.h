#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "comm/nccl_watch.h"

namespace strata::comm {

// NCCL's collectives on one CUDA lane. Non-blocking: calls return while NCCL still connects, and are polled with the
// run's abort token. Owns the ncclComm_t.
class NcclCommunicator final : public Communicator {
 public:
  // Collective: all ranks with the same id. The watch outlives it, the lane its work; `arena` is what buffers lie in,
  // for registration.
  NcclCommunicator(NcclWatch& watch, device::Lane& lane, int rank, int size, const ncclUniqueId& id,
                   std::span<std::byte> arena);
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
  CommBytes sent() const override { return sent_; }

  // For a thread that looks after the run: what NCCL found wrong meanwhile, or that it has been at work on one
  // collective for longer than `patience`; empty: nothing. Any thread.
  std::string trouble(std::chrono::seconds patience);
  // Ends the collectives in flight, whose results are lost. Any thread, once or more.
  void abort();

 private:
  std::uint64_t others() const { return static_cast<std::uint64_t>(size_ - 1); }
  // Throws for an error of a call; waits until NCCL has taken it in.
  void settle(ncclResult_t result, const char* call, std::size_t bytes);
  void end_group(const char* call, std::size_t bytes);

  NcclWatch& watch_;
  device::Lane& lane_;
  // The lane may be gone before the communicator: what is needed until then.
  device::AbortToken& token_;
  std::string name_;
  cudaStream_t stream_;
  int rank_, size_;
  std::mutex mutex_;  // of comm_ while it is aborted
  ncclComm_t comm_ = nullptr;
  bool aborted_ = false;
  CommBytes sent_;

  cudaEvent_t done_ = nullptr;  // recorded behind each collective
  std::atomic<std::uint64_t> issued_{0};
  std::uint64_t watched_ = 0;  // of issued_, when trouble() last saw all done or another one
  std::chrono::steady_clock::time_point since_;
};

}  // namespace strata::comm

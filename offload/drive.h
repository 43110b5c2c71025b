#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "offload/io_options.h"
#include "offload/submitter.h"
#include "offload/swap_file.h"

namespace strata::offload {

// A request that did not complete.
struct Failure {
  const SwapFile* file = nullptr;
  bool write = false;
  std::uint64_t offset = 0;  // offset in the file
  std::uint32_t size = 0;
  int error = 0;  // errno; 0: the end of the file came early
};

// One read or write over all drives. It lives on the stack of the thread that waits for it.
class Call {
 public:
  // A drive calls this when its share has ended. The waiting thread may return once all shares have ended.
  void finish(const std::optional<Failure>& failure);
  // Drives call this. True after the first failure: drives then start no further requests.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void set_failed() { failed_.store(true, std::memory_order_relaxed); }
  // The waiting thread calls this. True once all shares have ended.
  bool wait_for(std::chrono::milliseconds time);
  std::optional<Failure> failure();

  std::size_t shares = 0;  // set before the first one is started

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t finished_ = 0;
  std::optional<Failure> failure_;
  std::atomic<bool> failed_{false};
};

// One drive's part of a call. The caller keeps it until the call has ended or has been abandoned.
struct Share {
  Call* call = nullptr;
  bool write = false;
  std::byte* memory = nullptr;  // the memory of the call's first byte
  Stripes ranges;
  // Only the drive uses these.
  std::size_t in_flight = 0;
  bool issuing = false;
  std::optional<Failure> failure;
};

// One drive. Its I/O thread creates a submitter of `mode` for `file`, and keeps up to queue_depth requests in flight,
// taken from the open calls in turn. Short transfers are continued; EINTR and EAGAIN are retried. Throws
// std::system_error if the submitter cannot be created, Error{failed} if the thread cannot be started. Owns the thread;
// the file outlives it.
class Drive {
 public:
  Drive(const SwapFile& file, const IoMode& mode, const IoOptions& options);
  ~Drive();
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  // Calls Submitter::register_memory in the I/O thread and waits for it.
  int register_memory(std::span<std::byte> memory);
  // Queues a share, which must have ranges. When the share ends, the drive calls finish() of its call.
  void start(Share& share);
  // Issues no further requests of this share. It ends when those in flight have completed.
  void stop(Share& share);
  // Drops the share and its requests in flight: their completions are ignored.
  void abandon(Share& share);

 private:
  struct Slot {
    Share* share = nullptr;  // null: the slot is free, or its share was abandoned
    Request request;         // the part that is not transferred yet
    int attempts = 0;        // attempts without progress
  };
  void run(std::promise<void>& ready);
  void run_requests();
  void fill();
  void complete(const Completion& completion);
  void end_request(Slot& slot, std::optional<int> error);
  void end_share(Share& share);
  void break_down(int error);

  const SwapFile& file_;
  IoMode mode_;
  const IoOptions& options_;
  std::unique_ptr<Submitter> submitter_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Share*> issuing_;  // shares with ranges left
  std::size_t turn_ = 0;         // index in issuing_ of the share that is served next
  std::span<std::byte> to_register_;
  std::promise<int>* registered_ = nullptr;
  int broken_ = 0;  // errno of a failed submitter
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace strata::offload

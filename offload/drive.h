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
#include "offload/stripes.h"
#include "offload/submitter.h"
#include "offload/swap_file.h"

namespace strata::offload {

// A request that did not come to its end.
struct Failure {
  const SwapFile* file = nullptr;
  bool write = false;
  std::uint64_t offset = 0;  // in the file
  std::uint32_t size = 0;
  int error = 0;  // errno; 0: it ended early, at the end of the file
};

// One read or write over all drives, on the stack of the thread that waits for it.
class Call {
 public:
  // By a drive: its share has ended; the caller may go once all have.
  void finish(const std::optional<Failure>& failure);
  // By a drive: the first failure counts, and no drive starts further requests.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void set_failed() { failed_.store(true, std::memory_order_relaxed); }
  // By the caller. True once all shares have ended.
  bool wait_for(std::chrono::milliseconds time);
  std::optional<Failure> failure();

  std::size_t shares = 0;  // set before the first is started

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t finished_ = 0;
  std::optional<Failure> failure_;
  std::atomic<bool> failed_{false};
};

// One drive's part of a call. The caller keeps it until the call has ended or it was abandoned.
struct Share {
  Call* call = nullptr;
  bool write = false;
  std::byte* memory = nullptr;  // of the call's first byte
  Stripes ranges;
  // The drive's own.
  std::size_t in_flight = 0;
  bool issuing = false;
  std::optional<Failure> failure;
};

// One drive: its I/O thread, which makes a submitter of `rung` for `file` and keeps up to queue_depth requests in
// flight, taken from the open calls in turn. Short transfers are continued, EINTR and EAGAIN are tried again. Throws
// std::system_error if the submitter cannot be made, Error{failed} if the thread cannot. Owns the thread; the
// file outlives it.
class Drive {
 public:
  Drive(const SwapFile& file, const Rung& rung, const IoOptions& options);
  ~Drive();
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  // Submitter::register_memory in the I/O thread; waits for it.
  int register_memory(std::span<std::byte> memory);
  // Queues a share that has ranges; its call hears of the end.
  void start(Share& share);
  // No further requests of this share; it ends when those in flight have.
  void stop(Share& share);
  // Forgets the share, requests in flight too.
  void abandon(Share& share);

 private:
  struct Slot {
    Share* share = nullptr;  // null: free, or abandoned
    Request request;         // what is left of it
    int attempts = 0;        // without progress
  };
  void run(std::promise<void>& ready);
  void run_requests();
  void fill();
  void issue(Slot& slot);
  void complete(const Completion& completion);
  void end_request(Slot& slot, std::optional<int> error);
  void end_share(Share& share);
  void break_down(int error);

  const SwapFile& file_;
  Rung rung_;
  const IoOptions& options_;
  std::unique_ptr<Submitter> submitter_;

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Share*> issuing_;  // with ranges left
  std::size_t turn_ = 0;         // of issuing_, the next to be served
  std::span<std::byte> to_register_;
  std::promise<int>* registered_ = nullptr;
  int broken_ = 0;  // errno of a submitter that failed
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace strata::offload

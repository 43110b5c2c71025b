#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace strata {

// Callbacks by which a long operation reports to its caller.

// Receives, on rank 0, a one-line note for the user.
using Note = std::function<void(const std::string&)>;

// Reports the progress of a long operation, as the amount done and the total. Any thread may call it. Empty: progress
// is not reported.
using Advance = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Adds up the work that threads complete, and reports the sum and the total `all`.
class ProgressCounter {
 public:
  ProgressCounter(const Advance& advance, std::uint64_t all) : advance_(advance), all_(all) {}
  void add(std::uint64_t more) {
    const std::uint64_t done = done_.fetch_add(more) + more;
    if (advance_) advance_(done, all_);
  }

 private:
  const Advance& advance_;
  std::uint64_t all_;
  std::atomic<std::uint64_t> done_ = 0;
};

}  // namespace strata

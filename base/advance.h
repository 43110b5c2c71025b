#pragma once
#include <atomic>
#include <cstdint>
#include <functional>

namespace strata {

// Is told how much of something that takes a while is done, of how much; from any thread. Empty: nobody asks.
using Advance = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Adds up what threads have done of `all` and tells.
class Advancing {
 public:
  Advancing(const Advance& advance, std::uint64_t all) : advance_(advance), all_(all) {}
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

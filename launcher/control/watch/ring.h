#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

namespace strata::launcher::control {

// A queue of one writer and one reader that makes neither wait: what finds no room is dropped. How the run's threads
// tell this plane's: those of the run share no lock with anyone.
template <typename T, std::size_t N>
class Ring {
 public:
  void push(const T& item) {
    const std::size_t at = pushed_.load(std::memory_order_relaxed);
    if (at - popped_.load(std::memory_order_acquire) == N) return;
    items_[at % N] = item;
    pushed_.store(at + 1, std::memory_order_release);
  }
  std::optional<T> pop() {
    const std::size_t at = popped_.load(std::memory_order_relaxed);
    if (at == pushed_.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<T> item = items_[at % N];
    popped_.store(at + 1, std::memory_order_release);
    return item;
  }

 private:
  std::array<T, N> items_{};
  alignas(64) std::atomic<std::size_t> pushed_{0};
  alignas(64) std::atomic<std::size_t> popped_{0};
};

}  // namespace strata::launcher::control

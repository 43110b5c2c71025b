#pragma once
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/cpu/team.h"
#include "device/lane.h"

namespace strata::device {

struct Event::State {
  std::mutex mutex;
  std::condition_variable reached;
  std::uint64_t issued = 0;  // records issued; the host thread's alone
  std::uint64_t done = 0;    // records reached; under the mutex
};

// The CPU lane: a ring of closures of bounded size (nothing is allocated while the step runs) and the thread that
// runs them in order.
class Lane::Impl {
 public:
  Impl(std::string name, int threads, int rank, AbortToken& abort);
  ~Impl();

  // Queues work(team). The closure is copied into the ring; what it points to must live until it ran.
  template <typename F>
  void submit(F work) {
    static_assert(sizeof(F) <= kSlotBytes, "an operation's closure holds views and sizes, not data");
    static_assert(alignof(F) <= alignof(std::max_align_t) && std::is_trivially_destructible_v<F>);
    Slot& slot = acquire();
    new (slot.storage) F(std::move(work));
    slot.run = [](void* storage, cpu::Team& threads) { (*std::launder(static_cast<F*>(storage)))(threads); };
    publish();
  }

  void synchronize();

  const std::string name;
  const int rank;
  AbortToken& abort;
  cpu::Team team;

 private:
  static constexpr std::size_t kSlotBytes = 384, kSlots = 512;
  struct Slot {
    alignas(std::max_align_t) std::byte storage[kSlotBytes];
    void (*run)(void*, cpu::Team&);
  };

  Slot& acquire();
  void publish();
  void loop();

  std::vector<Slot> ring_;
  std::mutex mutex_;
  std::condition_variable work_, room_;
  std::uint64_t issued_ = 0, done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

namespace cpu {
// Queues work(Team&) in a lane of the CPU device.
template <typename F>
void submit(Lane& lane, F work) {
  lane.impl().submit(std::move(work));
}
}  // namespace cpu

}  // namespace strata::device

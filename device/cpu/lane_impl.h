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
#include "device/lane_impl.h"

namespace strata::device::cpu {

// The CPU lane: a bounded ring of closures (nothing is allocated while the step runs) and the thread that runs them in
// order.
class HostLane final : public Lane::Impl {
 public:
  HostLane(std::string name, int threads, int rank, AbortToken& abort);
  ~HostLane() override;

  int threads() const override { return team_.threads(); }
  void record(Event::State& event) override;
  void wait(Event::State& event) override;
  void stamp(std::int64_t* where) override;
  void synchronize() override;
  HostLane& begin_host_work() override { return *this; }
  void end_host_work() override {}

  // Queues work(team). The closure is copied into the ring. The data that it points to must live until it has run.
  template <typename F>
  void submit(F work) {
    queue(std::move(work), false);
  }
  // The same for work that an abort does not drop, because a device's stream would otherwise wait for it forever.
  template <typename F>
  void submit_always(F work) {
    queue(std::move(work), true);
  }

 private:
  static constexpr std::size_t kSlotBytes = 448, kSlots = 512;
  struct Slot {
    alignas(std::max_align_t) std::byte storage[kSlotBytes];
    void (*run)(void*, Team&);
    bool always;
  };

  template <typename F>
  void queue(F work, bool always) {
    static_assert(sizeof(F) <= kSlotBytes, "an operation's closure holds views and sizes, not data");
    static_assert(alignof(F) <= alignof(std::max_align_t) && std::is_trivially_destructible_v<F>);
    Slot& slot = acquire();
    new (slot.storage) F(std::move(work));
    slot.run = [](void* storage, Team& team) { (*std::launder(static_cast<F*>(storage)))(team); };
    slot.always = always;
    publish();
  }
  Slot& acquire();
  void publish();
  void loop();

  Team team_;
  std::vector<Slot> ring_;
  std::mutex mutex_;
  std::condition_variable work_, space_;
  std::uint64_t issued_ = 0, done_ = 0;
  bool stop_ = false;
  std::jthread thread_;
};

// Queues work(Team&) in a lane's order: the CPU's operations, and the host's share of work in a lane of another device.
template <typename F>
void submit(Lane& lane, F work) {
  lane.impl().begin_host_work().submit(std::move(work));
  lane.impl().end_host_work();
}

}  // namespace strata::device::cpu

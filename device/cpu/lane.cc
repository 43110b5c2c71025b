#include <fmt/format.h>
#include <omp.h>

#include <chrono>

#include "base/error.h"
#include "base/thread.h"
#include "device/backend.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {
namespace {
// The interval at which a sleeping wait polls the abort token.
constexpr auto kPoll = std::chrono::milliseconds(50);
// The interval at which a wait for another device polls that device.
constexpr auto kQuery = std::chrono::microseconds(20);
}  // namespace

HostLane::HostLane(std::string lane_name, int threads, int lane_rank, AbortToken& token)
    : Impl(std::move(lane_name), {}, lane_rank, token, cpu_backend().operations), team_(threads), ring_(kSlots) {
  thread_ = start_thread(fmt::format("the thread of lane {}", name), [this] { loop(); });
}

HostLane::~HostLane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

HostLane::Slot& HostLane::acquire() {
  std::unique_lock lock(mutex_);
  space_.wait(lock, [&] { return issued_ - done_ < kSlots; });
  return ring_[issued_ % kSlots];
}

void HostLane::publish() {
  {
    const std::lock_guard lock(mutex_);
    ++issued_;
  }
  work_.notify_one();
}

void HostLane::loop() {
  omp_set_num_threads(1);  // see Team::work
  for (;;) {
    std::uint64_t at;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return stop_ || done_ != issued_; });
      if (done_ == issued_) return;
      at = done_;
    }
    Slot& slot = ring_[at % kSlots];
    try {
      if (slot.always || !abort.is_set()) slot.run(slot.storage, team_);
    } catch (const Aborted&) {
    } catch (const std::exception& e) {
      abort.set({rank, e.what(), exit_code(e)});
    }
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    space_.notify_all();
  }
}

void HostLane::synchronize() {
  std::unique_lock lock(mutex_);
  space_.wait(lock, [&] { return done_ == issued_; });
  lock.unlock();
  abort.throw_if_set();
}

void HostLane::record(Event::State& event) {
  if (event.lane && event.lane != this && event.recorder == Kind::cpu) {
    // If the other lane reached its record after this one, event.done would fall back, and a wait might never end.
    const std::lock_guard lock(event.mutex);
    STRATA_CHECK_EQ(event.done, event.issued);
  }
  event.lane = this;
  const std::uint64_t n = ++event.issued;
  event.recorder = Kind::cpu;
  submit_always([state = &event, n](Team&) {
    const std::lock_guard lock(state->mutex);
    state->done = n;
    if (state->twin) state->twin->signal(n);
    state->reached.notify_all();  // under the lock: the event may be destroyed right afterwards
  });
}

void HostLane::wait(Event::State& event) {
  const std::uint64_t n = event.issued;
  if (n == 0) return;
  if (event.recorder != Kind::cpu)
    return submit([twin = event.twin.get(), n, token = &abort](Team&) {
      for (; !twin->reached(n); std::this_thread::sleep_for(kQuery)) token->throw_if_set();
    });
  submit([state = &event, n, token = &abort](Team&) {
    std::unique_lock lock(state->mutex);
    while (!state->reached.wait_for(lock, kPoll, [&] { return state->done >= n; })) token->throw_if_set();
  });
}

void HostLane::stamp(std::int64_t* where) {
  submit([where](Team&) { *where = std::chrono::steady_clock::now().time_since_epoch().count(); });
}

}  // namespace strata::device::cpu

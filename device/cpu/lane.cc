#include "device/lane.h"

#include <omp.h>

#include <chrono>

#include "device/cpu/lane_impl.h"
#include "device/error.h"

namespace strata::device {
namespace {
// How often a sleeping wait looks at the abort token.
constexpr auto kPoll = std::chrono::milliseconds(50);
}  // namespace

Event::Event() : state_(std::make_unique<State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

Lane::Impl::Impl(std::string lane_name, int threads, int lane_rank, AbortToken& token)
    : name(std::move(lane_name)), rank(lane_rank), abort(token), team(threads), ring_(kSlots) {
  thread_ = std::thread([this] { loop(); });
}

Lane::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

Lane::Impl::Slot& Lane::Impl::acquire() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return issued_ - done_ < kSlots; });
  return ring_[issued_ % kSlots];
}

void Lane::Impl::publish() {
  {
    const std::lock_guard lock(mutex_);
    ++issued_;
  }
  work_.notify_one();
}

void Lane::Impl::loop() {
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
      if (!abort.is_set()) slot.run(slot.storage, team);
    } catch (const Aborted&) {
    } catch (const std::exception& e) {
      abort.set({rank, e.what(), exit_code(e)});
    }
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    room_.notify_all();
  }
}

void Lane::Impl::synchronize() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return done_ == issued_; });
  lock.unlock();
  abort.throw_if_set();
}

Lane::Lane(std::string name, int threads, int rank, AbortToken& abort)
    : impl_(std::make_unique<Impl>(std::move(name), threads, rank, abort)) {}
Lane::~Lane() = default;
Lane::Lane(Lane&&) noexcept = default;

const std::string& Lane::name() const {
  return impl_->name;
}
int Lane::threads() const {
  return impl_->team.threads();
}
AbortToken& Lane::abort() const {
  return impl_->abort;
}
void Lane::synchronize() {
  impl_->synchronize();
}

void Lane::record(Event& event) {
  Event::State* state = &event.state();
  const std::uint64_t n = ++state->issued;
  impl_->submit([state, n](cpu::Team&) {
    const std::lock_guard lock(state->mutex);
    state->done = n;
    state->reached.notify_all();  // under the lock: the event may be destroyed right after
  });
}

void Lane::wait(const Event& event) {
  Event::State* state = &event.state();
  const std::uint64_t n = state->issued;
  if (n == 0) return;
  impl_->submit([state, n, token = &impl_->abort](cpu::Team&) {
    std::unique_lock lock(state->mutex);
    while (!state->reached.wait_for(lock, kPoll, [&] { return state->done >= n; })) token->throw_if_set();
  });
}

void Lane::stamp(std::int64_t* where) {
  impl_->submit([where](cpu::Team&) { *where = std::chrono::steady_clock::now().time_since_epoch().count(); });
}

}  // namespace strata::device

#include "offload/drive.h"

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/thread.h"

namespace strata::offload {
namespace {

// The maximum number of attempts of one request without progress. After that, the cause is not temporary.
constexpr int kMaxAttempts = 1000;

std::unique_ptr<Submitter> open_submitter(const IoMode& mode, int descriptor, int queue_depth) {
  switch (mode.engine) {
    case Engine::io_uring:
      return open_uring(descriptor, queue_depth, mode.registered);
    case Engine::libaio:
      return open_libaio(descriptor, queue_depth);
    case Engine::threads:
      break;
  }
  return open_thread_pool(descriptor, queue_depth);
}

}  // namespace

void Call::finish(const std::optional<Failure>& failure) {
  const std::lock_guard lock(mutex_);
  if (failure && !failure_) failure_ = failure;
  ++finished_;
  done_.notify_all();  // under the lock: the call may be destroyed right afterwards
}

bool Call::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, time, [&] { return finished_ == shares; });
}

std::optional<Failure> Call::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Drive::Drive(const SwapFile& file, const IoMode& mode, const IoOptions& options)
    : file_(file), mode_(mode), options_(options), slots_(static_cast<std::size_t>(options.queue_depth)) {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
  issuing_.reserve(64);
  std::promise<void> ready;
  auto opened = ready.get_future();
  thread_ = start_thread("the I/O thread of a drive", [this, &ready] { run(ready); });
  try {
    opened.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

Drive::~Drive() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    submitter_->wake();
  }
  thread_.join();
}

void Drive::start(Share& share) {
  const std::lock_guard lock(mutex_);
  if (broken_ != 0) {
    const BlockRange range = share.ranges.next();
    share.failure = Failure{&file_, share.write, range.file_offset, range.size, broken_};
    share.call->set_failed();
    share.call->finish(share.failure);
    return;
  }
  share.issuing = true;
  issuing_.push_back(&share);
  submitter_->wake();
}

void Drive::stop(Share& share) {
  const std::lock_guard lock(mutex_);
  if (!share.issuing) return;
  std::erase(issuing_, &share);
  share.issuing = false;
  if (share.in_flight == 0) end_share(share);
}

void Drive::abandon(Share& share) {
  const std::lock_guard lock(mutex_);
  std::erase(issuing_, &share);
  for (Slot& slot : slots_)
    if (slot.share == &share) slot.share = nullptr;
}

int Drive::register_memory(std::span<std::byte> memory) {
  std::promise<int> registered;
  auto result = registered.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (broken_ != 0) return broken_;
    to_register_ = memory;
    registered_ = &registered;
    submitter_->wake();
  }
  return result.get();
}

void Drive::run(std::promise<void>& ready) {
  try {
    submitter_ = open_submitter(mode_, file_.descriptor(), options_.queue_depth);
    if (options_.wrap) submitter_ = options_.wrap(std::move(submitter_), mode_);
  } catch (...) {
    ready.set_exception(std::current_exception());
    return;
  }
  ready.set_value();  // `ready` no longer exists after this
  try {
    run_requests();
  } catch (const std::system_error& error) {
    break_down(error.code().value());
  }
  // A broken submitter stays alive, because other threads may still wake it.
}

void Drive::run_requests() {
  std::vector<Completion> completions(slots_.size());
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      if (registered_) std::exchange(registered_, nullptr)->set_value(submitter_->register_memory(to_register_));
      fill();
    }
    const std::size_t n = submitter_->wait(completions);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < n; ++i) complete(completions[i]);
  }
}

// Takes requests from the open calls in turn, so that a write does not wait until a long read has been issued.
void Drive::fill() {
  while (!free_.empty() && !issuing_.empty()) {
    if (turn_ >= issuing_.size()) turn_ = 0;
    Share& share = *issuing_[turn_];
    if (!share.call->failed()) {
      const BlockRange range = share.ranges.next();
      const std::uint32_t index = free_.back();
      free_.pop_back();
      Slot& slot = slots_[index];
      slot = {&share, {share.write, share.memory + range.from_start, range.size, range.file_offset, index}, 0};
      ++share.in_flight;
      submitter_->submit(slot.request);
    }
    if (!share.ranges.empty() && !share.call->failed()) {
      ++turn_;
      continue;
    }
    issuing_.erase(issuing_.begin() + static_cast<std::ptrdiff_t>(turn_));
    share.issuing = false;
    if (share.in_flight == 0) end_share(share);
  }
}

void Drive::complete(const Completion& completion) {
  Slot& slot = slots_[completion.slot];
  Request& request = slot.request;
  const int result = completion.result;
  if (!slot.share) {  // the share was abandoned
    free_.push_back(completion.slot);
    return;
  }
  const bool again = result == -EINTR || result == -EAGAIN;
  if (result < 0 && (!again || ++slot.attempts == kMaxAttempts)) return end_request(slot, -result);
  if (result == 0) return end_request(slot, 0);
  if (result > 0 && static_cast<std::uint32_t>(result) >= request.size) return end_request(slot, std::nullopt);
  if (result > 0) {
    // Only whole pages count: direct I/O cannot continue from a place inside a page.
    const std::uint32_t moved = static_cast<std::uint32_t>(result) / kPage * kPage;
    if (moved == 0 && ++slot.attempts == kMaxAttempts) return end_request(slot, 0);
    if (moved != 0) slot.attempts = 0;
    request.data += moved;
    request.size -= moved;
    request.offset += moved;
  }
  submitter_->submit(request);
}

// error: an errno; 0 if the file ended early; none if the request succeeded.
void Drive::end_request(Slot& slot, std::optional<int> error) {
  Share& share = *std::exchange(slot.share, nullptr);
  const Request& request = slot.request;
  if (error && !share.failure) {
    share.failure = Failure{&file_, request.write, request.offset, request.size, *error};
    share.call->set_failed();
  }
  free_.push_back(request.slot);
  if (--share.in_flight == 0 && !share.issuing) end_share(share);
}

// This is the last access: afterwards the caller may destroy the share.
void Drive::end_share(Share& share) {
  share.call->finish(share.failure);
}

void Drive::break_down(int error) {
  const std::lock_guard lock(mutex_);
  broken_ = error;
  for (Share* share : issuing_) share->issuing = false;
  std::vector<Share*> idle;
  for (Share* share : issuing_)
    if (share->in_flight == 0) idle.push_back(share);
  for (Share* share : idle) {
    share->failure = Failure{&file_, share->write, 0, 0, error};
    share->call->set_failed();
    end_share(*share);
  }
  issuing_.clear();
  for (Slot& slot : slots_)
    if (slot.share) end_request(slot, error);
  if (registered_) std::exchange(registered_, nullptr)->set_value(error);
}

}  // namespace strata::offload

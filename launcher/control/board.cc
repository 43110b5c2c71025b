#include "launcher/control/board.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace strata::launcher::control {

void Board::post(const runtime::StepReport& report, const comm::CommBytes& sent, const runtime::Memory& measured) {
  StepPost post{report, seconds_since_epoch(), sent, {}};
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier) post.measured[tier] = measured[tier].peak;
  steps_.push(post);
}

void Board::post_saved(std::int64_t step, std::string_view path) {
  SavedPost post{step, seconds_since_epoch(), {}};
  path.copy(post.path.data(), post.path.size() - 1);
  saves_.push(post);
}

// Marks a requested stop as seen by the run, and adds `takes` to the word in any case.
std::uint64_t Board::see(std::uint64_t takes) {
  std::uint64_t word = stop_.load();
  while (!stop_.compare_exchange_weak(word, (word + takes) | ((word & kRequested) != 0 ? kSeen : 0))) {
  }
  return bits_of(word);
}

std::uint64_t Board::take_stop() {
  return see(0);
}

Board::Stop Board::request_stop(bool at_once) {
  const std::lock_guard lock(mutex_);
  std::uint64_t word = stop_.load();
  while ((word & kSeen) == 0 && !stop_.compare_exchange_weak(word, word | kRequested | (at_once ? kAtOnce : 0))) {
  }
  if ((word & kRequested) == 0) {
    const std::int64_t last = begins_after_ + static_cast<std::int64_t>(word / kTake) + 1;
    ends_.last = status_.state() == pb::STARTING ? 0
                 : status_.max_steps() > 0       ? std::min(last, status_.max_steps())
                                                 : last;
  }
  if ((word & kSeen) == 0) ends_.at_once = ends_.at_once || at_once;
  return ends_;
}

std::uint64_t Board::take_requests() {
  return see(kTake) | (checkpoint_requested_.exchange(false, std::memory_order_relaxed) ? runtime::kCheckpoint : 0);
}

void Board::collect() {
  const std::lock_guard lock(mutex_);
  while (const auto post = steps_.pop()) {
    const runtime::StepReport& r = post->report;
    pb::Step step;
    step.set_step(r.step);
    step.set_loss(r.loss);
    step.set_grad_norm(r.grad_norm);
    step.set_learning_rate(r.learning_rate);
    step.set_loss_scale(r.loss_scale);
    step.set_skipped(r.skipped);
    step.set_tokens(r.tokens);
    step.set_seconds(r.step_ms * 1e-3);
    step.set_time(post->time);
    step.set_disk_bytes(r.disk_bytes);
    // Leave the first step out of the mean: it touches every page for the first time, so its time does not represent
    // later steps.
    const double smooth = newest_.size() < 2 ? step.seconds() : 0.9 * status_.step_seconds() + 0.1 * step.seconds();
    status_.set_state(r.step >= status_.max_steps() ? pb::ENDING : stop_requested() ? pb::STOPPING : pb::TRAINING);
    status_.set_step(r.step);
    status_.set_step_seconds(smooth);
    status_.set_tokens_per_second(static_cast<double>(r.tokens) / std::max(smooth, 1e-9));
    status_.set_seconds_left(static_cast<double>(std::max<std::int64_t>(0, status_.max_steps() - r.step)) * smooth);
    status_.set_tokens(status_.tokens() + r.tokens);
    if (r.skipped) status_.set_skipped_steps(status_.skipped_steps() + 1);
    for (std::size_t tier = 0; tier < runtime::kTiers && tier < static_cast<std::size_t>(status_.memory_size()); ++tier)
      status_.mutable_memory(static_cast<int>(tier))->set_measured_bytes(post->measured[tier]);
    pb::Traffic& sent = *status_.mutable_sent();
    sent.set_all_gather(post->sent.all_gather);
    sent.set_all_to_all(post->sent.all_to_all);
    sent.set_broadcast(post->sent.broadcast);
    sent.set_consensus(post->sent.consensus);
    sent.set_point_to_point(post->sent.point_to_point);
    *status_.mutable_last() = step;
    newest_.push_back(std::move(step));
    if (newest_.size() > kSteps) newest_.pop_front();
  }
  while (const auto post = saves_.pop()) {
    ++checkpoints_;
    pb::SavedCheckpoint& saved = *status_.mutable_checkpoint();
    saved.set_step(post->step);
    saved.set_path(post->path.data());
    saved.set_time(post->time);
    pb::Event& event = *status_.add_events();
    event.set_time(post->time);
    event.set_text(fmt::format("checkpoint of step {} is durable", post->step));
  }
  const int spare = status_.events_size() - static_cast<int>(kEvents);
  if (spare > 0) status_.mutable_events()->DeleteSubrange(0, spare);
}

void Board::describe(const pb::RunInfo& run, std::int64_t max_steps, const runtime::Memory& planned,
                     std::int64_t step) {
  const std::lock_guard lock(mutex_);
  *status_.mutable_run() = run;
  status_.set_max_steps(max_steps);
  status_.set_step(step);
  begins_after_ = step;
  status_.clear_memory();
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier) {
    pb::Tier& t = *status_.add_memory();
    t.set_name(std::string(runtime::kTierNames[tier]));
    t.set_planned_bytes(planned[tier].peak);
  }
}

void Board::describe(const pb::Plan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
}

void Board::add_event(std::string text) {
  const std::lock_guard lock(mutex_);
  pb::Event& event = *status_.add_events();
  event.set_time(seconds_since_epoch());
  event.set_text(std::move(text));
}

void Board::set_state(pb::State state) {
  const std::lock_guard lock(mutex_);
  status_.set_state(state);
}

pb::Status Board::status() const {
  const std::lock_guard lock(mutex_);
  pb::Status out = status_;
  if (stop_requested() && out.state() != pb::ENDING) out.set_state(pb::STOPPING);
  out.set_slowest_rank(-1);
  out.set_now(seconds_since_epoch());
  return out;
}

pb::Plan Board::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

std::optional<pb::Step> Board::step_after(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(newest_.begin(), newest_.end(), [&](const pb::Step& known) { return known.step() > step; });
  if (found == newest_.end()) return std::nullopt;
  return *found;
}

std::int64_t Board::steps_done() const {
  const std::lock_guard lock(mutex_);
  return status_.step();
}

std::pair<pb::SavedCheckpoint, std::int64_t> Board::saved() const {
  const std::lock_guard lock(mutex_);
  return {status_.checkpoint(), checkpoints_};
}

}  // namespace strata::launcher::control

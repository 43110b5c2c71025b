#include "runtime/execute/rank_progress.h"

#include <chrono>

namespace strata::runtime {
namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;

// Moves the estimate up or down by a tenth of itself for each duration. It converges to about the median, and outliers
// weigh no more than other runs.
void update_median(std::int64_t& typical, std::int64_t took) {
  typical = typical == 0 ? took : took > typical ? typical + typical / 10 + 1 : typical - typical / 10;
}

}  // namespace

void RankProgress::enter(Phase now_in) {
  counter.store(0, kRelaxed);
  phase_since.store(std::chrono::steady_clock::now().time_since_epoch().count(), kRelaxed);
  phase.store(now_in, kRelaxed);
}

ProgressPublisher::ProgressPublisher(const StepPlan& plan, RankProgress& progress, std::int64_t first)
    : plan_(plan), progress_(progress), first_(first), typical_(plan.tasks.size()) {
  progress.step.store(first, kRelaxed);
}

RankProgress::OfLane& ProgressPublisher::lane_of(std::size_t task) {
  return progress_.lanes[static_cast<std::size_t>(plan_.tasks[task].lane)];
}

void ProgressPublisher::begin(std::size_t task, std::int64_t step, std::int64_t now) {
  if (plan_.tasks[task].kind == TaskKind::host_write) host_wrote_ = now;
  RankProgress::OfLane& lane = lane_of(task);
  lane.since.store(now, kRelaxed);
  lane.typical.store(typical_[task], kRelaxed);
  lane.place.store(packed({first_ + step + 1, static_cast<int>(task), true}), kRelaxed);
}

void ProgressPublisher::end(std::size_t task, std::int64_t step, std::int64_t now) {
  RankProgress::OfLane& lane = lane_of(task);
  const std::int64_t began = lane.since.load(kRelaxed), took = now - began;
  const std::uint64_t place = packed({first_ + step + 1, static_cast<int>(task), false});
  RankProgress::Done& done = progress_.done[progress_.done_count.fetch_add(1, kRelaxed) % RankProgress::kDone];
  done.place.store(place, kRelaxed);
  done.lane.store(static_cast<std::uint32_t>(plan_.tasks[task].lane), kRelaxed);
  done.begin.store(began, kRelaxed);
  done.end.store(now, kRelaxed);
  update_median(typical_[task], took);
  if (plan_.tasks[task].lane == LaneId::compute) compute_.fetch_add(took, kRelaxed);
  lane.since.store(now, kRelaxed);
  lane.place.store(place, kRelaxed);
}

void ProgressPublisher::issued(std::size_t task, std::int64_t step, std::int64_t now) {
  RankProgress::OfLane& lane = lane_of(task);
  lane.since.store(now, kRelaxed);
  lane.typical.store(0, kRelaxed);
  lane.place.store(packed({first_ + step + 1, static_cast<int>(task), true}), kRelaxed);
}

void ProgressPublisher::stepped() {
  const std::int64_t counted = compute_.exchange(0, kRelaxed);
  // GPU lanes do not report durations. The time from the host's write to its read covers their work except the update.
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  progress_.compute.store(counted ? counted : now - host_wrote_, kRelaxed);
  progress_.step.fetch_add(1, kRelaxed);
  if (host_wrote_ != 0) update_median(typical_step_, now - host_wrote_);
  progress_.typical.store(typical_step_, kRelaxed);
  if (plan_.device.kind == device::Kind::cpu) return;
  // GPU lanes do not report the end of a task either.
  for (RankProgress::OfLane& lane : progress_.lanes) {
    const std::uint64_t place = lane.place.load(kRelaxed);
    if (!unpacked(place).running) continue;
    lane.since.store(now, kRelaxed);
    lane.place.store(place & ~std::uint64_t{1}, kRelaxed);
  }
}

}  // namespace strata::runtime

#include "launcher/measure/call_timer.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/clock.h"

namespace strata::launcher {
namespace {

// The mean without the slowest 5%. A step is the sum of many calls. So on a machine whose speed varies, slow calls must
// count as often as they occur, but a single outlier must not count.
double typical(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto kept = static_cast<std::ptrdiff_t>(seconds.size() - (seconds.size() > 1 ? (seconds.size() + 19) / 20 : 0));
  return std::accumulate(seconds.begin(), seconds.begin() + kept, 0.0) / static_cast<double>(kept);
}

}  // namespace

CallTimer::CallTimer(double seconds, int passes, comm::World& world)
    : seconds_(seconds),
      passes_(passes),
      world_(world),
      activity_("measuring, in percent of each pass", Activity::Unit::count, world.rank() == 0) {
  STRATA_CHECK(passes > 0);
}

void CallTimer::begin_pass() {
  ++pass_;
  next_ = 0;
  figures_.clear();
}

std::vector<CallTimer::Samples>& CallTimer::next(std::size_t groups) {
  activity_.show(static_cast<std::uint64_t>(pass_) * 100 + std::min<std::uint64_t>(4 * next_, 99),
                 static_cast<std::uint64_t>(passes_) * 100);
  if (next_ == samples_.size()) samples_.emplace_back(groups);
  return samples_[next_++];
}

std::vector<double> CallTimer::time(device::Lane& lane, const std::vector<Calls>& groups) {
  world_.barrier();
  std::vector<Samples>& seconds = next(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) seconds[g].resize(groups[g].size());
  const double enough = seconds_ / passes_ * static_cast<double>(groups.size());
  double all = 0;
  bool warm = false;
  do {
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::size_t i = 0; i < groups[g].size(); ++i) {
        const auto start = std::chrono::steady_clock::now();
        groups[g][i]();
        lane.synchronize();
        const double took = seconds_since(start);
        if (warm) seconds[g][i].push_back(took);
        if (warm) all += took;
      }
  } while (!std::exchange(warm, true) || all < enough);
  std::vector<double> out(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::vector<double>& s : seconds[g]) out[g] += typical(s);
  return out;
}

double CallTimer::time_collective(device::Lane& lane, const std::function<void()>& collective) {
  // The number must be the same on every rank, because a rank that stopped early would leave the others waiting.
  const int times = std::max(1, 12 / passes_);
  Samples& group = next(1)[0];
  group.resize(1);
  std::vector<double>& seconds = group[0];
  for (int i = -1; i < times; ++i) {
    world_.barrier();
    const auto start = std::chrono::steady_clock::now();
    collective();
    lane.synchronize();
    if (i >= 0) seconds.push_back(seconds_since(start));
  }
  return typical(seconds);
}

void CallTimer::show(std::string what, std::string unit, double value, std::size_t group) {
  double spread = 0, all = 0;
  for (const std::vector<double>& seconds : samples_[next_ - 1][group]) {
    if (seconds.empty()) continue;
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t last = sorted.size() - 1;
    spread += (sorted[last * 9 / 10] - sorted[last / 10]) / 2;
    all += sorted[last / 2];
  }
  figures_.push_back({std::move(what), std::move(unit), value, all > 0 ? spread / all : 0});
}

std::vector<Figure> CallTimer::take_figures() {
  activity_.clear();
  return std::move(figures_);
}

}  // namespace strata::launcher

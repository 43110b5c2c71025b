#include "runtime/job/order.h"

#include <cmath>

#include "runtime/forecast/simulator.h"

namespace strata::runtime {
namespace {

// The speedup that a relative growth of memory must bring, and the difference that the simulator hardly resolves.
constexpr double kSpeedPerMemory = 0.5, kAlike = 0.01;

double bytes_of(const StepPlan& plan) {
  return static_cast<double>(plan.memory[0].peak + plan.memory[1].peak);
}

// Whether the extra memory of `more` brings enough speed over `less`.
bool is_worth_it(const StepPlan& more, const StepPlan& less) {
  const double growth = bytes_of(more) / bytes_of(less) - 1;
  const MachineProfile machine = nominal_profile(less);
  const auto seconds = [&](const StepPlan& plan) { return makespan_s(plan, simulate(plan, machine)); };
  const double gain = seconds(less) / seconds(more) - 1;
  const auto moved = [](const StepPlan& p) { return p.comm_bytes.total() + p.io_bytes.total(); };
  if (growth <= kAlike && std::abs(gain) <= kAlike) return moved(more) < moved(less);
  return gain >= kSpeedPerMemory * growth && gain > 0;
}

}  // namespace

bool takes_vertical(const OrderedPlan& horizontal, const OrderedPlan& vertical,
                    const std::function<std::size_t()>& device_limit) {
  if (horizontal.fits != vertical.fits) return vertical.fits;
  const bool vertical_is_less = bytes_of(vertical.plan) < bytes_of(horizontal.plan);
  if (!vertical.fits) return vertical_is_less;
  const StepPlan& less = (vertical_is_less ? vertical : horizontal).plan;
  const StepPlan& more = (vertical_is_less ? horizontal : vertical).plan;
  const bool takes_more = is_worth_it(more, less);
  const std::size_t taken = (takes_more ? more : less).memory[0].peak, left = (takes_more ? less : more).memory[0].peak;
  const bool too_much = taken > left && taken > device_limit();
  return vertical_is_less != (takes_more != too_much);
}

std::vector<Recipe> with_less_moved(const Recipe& recipe, int ranks) {
  std::vector<Recipe> out;
  const Recipe::Zero& zero = recipe.zero;
  if (ranks > 1 && zero.stage > 0) --out.emplace_back(recipe).zero.stage;
  for (const auto at :
       {&Recipe::Zero::parameters, &Recipe::Zero::gradients, &Recipe::Zero::optimizer, &Recipe::Zero::activations})
    if (zero.*at != Tier::device)
      out.emplace_back(recipe).zero.*at = zero.*at == Tier::nvme ? Tier::host : Tier::device;
  return out;
}

}  // namespace strata::runtime

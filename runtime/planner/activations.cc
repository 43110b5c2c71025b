#include "runtime/planner/activations.h"

#include <utility>

#include "runtime/tasks/collectives/rows.h"

namespace strata::runtime {
namespace {

constexpr const char* kResidual = "gradient of the residual stream";

}  // namespace

Activations::Activations(Draft& draft)
    : d_(draft),
      inputs_(static_cast<std::size_t>(draft.units() * draft.request.accumulation), -1),
      saved_(inputs_),
      residuals_(static_cast<std::size_t>(draft.request.accumulation), -1) {}

std::size_t Activations::at(int unit, int g) const {
  return static_cast<std::size_t>(g) * static_cast<std::size_t>(d_.units()) + static_cast<std::size_t>(unit);
}

int Activations::add(std::string name) {
  return d_.add_buffer(std::move(name), Kind::activations, Tier::device, GatherRows::rows_bytes(d_), false);
}
int Activations::add_whole(std::string name) {
  return d_.add_buffer(std::move(name), Kind::activations, Tier::device, GatherRows::whole_bytes(d_), false);
}
int Activations::add_residual(int g) {
  return residual_of(g) = add(kResidual);
}

bool Activations::takes_all_rows(int unit) const {
  return d_.plan.rows < d_.plan.tokens && !d_.unit(unit).ports().own_rows;
}

int Activations::gather(int unit, int g, bool backward, int rows, const std::string& name) {
  const int whole = add_whole(name);
  GatherRows{.unit = unit, .micro_batch = g, .backward = backward, .rows = rows, .whole = whole}.add(d_);
  return whole;
}

int Activations::input_for(int unit, int g) {
  if (!takes_all_rows(unit)) return input_of(unit, g);
  return gather(unit, g, false, input_of(unit, g), "all rows for " + d_.unit(unit).name());
}

int Activations::residual_for(int unit, int g) {
  if (!takes_all_rows(unit)) return residual_of(g);
  return gather(unit, g, true, residual_of(g), std::string(kResidual) + ", all rows");
}

int Activations::output_for(int unit, int g) {
  const std::string name = "output of " + d_.unit(unit).name();
  return input_of(unit + 1, g) = takes_all_rows(unit) ? add_whole(name) : add(name);
}

int Activations::new_residual_for(int unit, int g) {
  return takes_all_rows(unit) ? add_whole(kResidual) : add_residual(g);
}

void Activations::take_output(int unit, int g) {
  if (!takes_all_rows(unit)) return;
  const int whole = input_of(unit + 1, g);
  input_of(unit + 1, g) = add("rows of the output of " + d_.unit(unit).name());
  TakeRows{unit, g, whole, input_of(unit + 1, g)}.add(d_);
}

void Activations::take_residual(int unit, int g, int whole) {
  if (takes_all_rows(unit)) TakeRows{unit, g, whole, add_residual(g)}.add(d_);
}

}  // namespace strata::runtime

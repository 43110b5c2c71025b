#include "runtime/planner/activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "runtime/planner/fetches.h"
#include "runtime/tasks/collectives/activations.h"

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
int Activations::add_full(std::string name) {
  return d_.add_buffer(std::move(name), Kind::activations, Tier::device, GatherRows::full_bytes(d_), false);
}
int Activations::add_residual(int g) {
  return residual_of(g) = add(kResidual);
}

bool Activations::takes_all_rows(int unit) const {
  return d_.plan.rows < d_.plan.tokens && !d_.unit(unit).ports().own_rows;
}

int Activations::gather(int unit, int g, bool backward, int rows, const std::string& name) {
  const int full = add_full(name);
  GatherRows{.unit = unit, .micro_batch = g, .backward = backward, .rows = rows, .full = full}.add(d_);
  return full;
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
  return input_of(unit + 1, g) = takes_all_rows(unit) ? add_full(name) : add(name);
}

int Activations::new_residual_for(int unit, int g) {
  return takes_all_rows(unit) ? add_full(kResidual) : add_residual(g);
}

void Activations::take_output(int unit, int g) {
  if (!takes_all_rows(unit)) return;
  const int full = input_of(unit + 1, g);
  input_of(unit + 1, g) = add("rows of the output of " + d_.unit(unit).name());
  TakeRows{unit, g, full, input_of(unit + 1, g)}.add(d_);
}

void Activations::take_residual(int unit, int g, int full) {
  if (takes_all_rows(unit)) TakeRows{unit, g, full, add_residual(g)}.add(d_);
}

OffloadedInputs::OffloadedInputs(Draft& draft)
    : d_(draft), stored_(index(draft.units()) * index(draft.request.accumulation), -1) {}

bool OffloadedInputs::has(int unit) const {
  if (d_.plan.placement.activations == Tier::device) return false;
  return std::ranges::any_of(d_.request.segments, [&](const Segment& s) { return s.recompute && s.first == unit; });
}

int& OffloadedInputs::stored_buffer(int unit, int micro_batch) {
  return stored_[index(micro_batch * d_.units() + unit)];
}

void OffloadedInputs::find_returns(const std::vector<Visit>& visits) {
  returns_before_.resize(visits.size());
  std::vector<int> forward(stored_.size(), -1);
  std::vector<bool> returned(stored_.size());
  for (int v = 0; v < static_cast<int>(visits.size()); ++v)
    for (const Call& call : visits[index(v)].calls) {
      if (!has(call.unit)) continue;
      const std::size_t i = index(call.micro_batch * d_.units() + call.unit);
      if (call.kind == TaskKind::forward) forward[i] = v;
      if (call.kind != TaskKind::recompute || returned[i]) continue;
      returned[i] = true;
      returns_before_[index(std::max(forward[i] + 1, v - 1))].push_back({call.unit, call.micro_batch});
    }
}

void OffloadedInputs::offload(int unit, int micro_batch, int x) {
  const std::string what = fmt::format("input of {}", d_.unit(unit).name());
  const int stored = d_.add_buffer(what, Kind::activations, d_.plan.placement.activations,
                                   d_.bytes_of(d_.plan.rows * d_.model.hidden), false);
  stored_buffer(unit, micro_batch) = stored;
  copy_slices(d_, {d_.whole(x)}, {d_.whole(stored)}, unit, what);
}

int OffloadedInputs::reload(int unit, int micro_batch) {
  return copy_to_tier(d_, {d_.whole(stored_buffer(unit, micro_batch))}, Tier::device, unit,
                      fmt::format("input of {}", d_.unit(unit).name()), Kind::activations)[0]
      .buffer;
}

double share_of_products(const std::vector<models::Seam>& seams, std::size_t i) {
  const bool divided = std::ranges::any_of(seams, [](const models::Seam& seam) { return seam.row_matrices > 0; });
  const auto has_products = [&](const models::Seam& seam) { return seam.has_products && (!divided || seam.own_rows); };
  const auto stretches = std::ranges::count_if(seams, has_products);
  if (stretches == 0) return i == (divided ? 1U : 0U) ? 1 : 0;
  return i < seams.size() && has_products(seams[i]) ? 1.0 / static_cast<double>(stretches) : 0;
}

int add_partial(Draft& draft, int unit, const models::Seam& seam) {
  const std::size_t bytes =
      seam.row_matrices > 0 ? GatherRows::rows_bytes(draft, seam.row_matrices) : Exchange::partial_bytes(draft, seam);
  return draft.add_buffer("partial sums of " + draft.unit(unit).name(), Kind::activations, Tier::device, bytes, false);
}

int add_total(Draft& draft, const Call& call, const models::Seam& seam, int partial, int parameters, int frozen) {
  const bool backward = call.kind == TaskKind::backward, gathers = seam.row_matrices > 0;
  const int total = draft.add_buffer(
      (gathers ? "rows of " : "sums of ") + draft.unit(call.unit).name(), Kind::activations, Tier::device,
      gathers ? GatherRows::full_bytes(draft, seam.row_matrices) : Exchange::total_bytes(draft, seam), false);
  if (gathers)
    GatherRows{.unit = call.unit,
               .micro_batch = call.micro_batch,
               .stretch = call.stretch,
               .backward = backward,
               .matrices = seam.row_matrices,
               .rows = partial,
               .full = total}
        .add(draft);
  else
    Exchange{.unit = call.unit,
             .micro_batch = call.micro_batch,
             .stretch = call.stretch,
             .backward = backward,
             .seam = seam,
             .partial = partial,
             .total = total,
             .parameters = parameters,
             .frozen = frozen}
        .add(draft);
  return total;
}

}  // namespace strata::runtime

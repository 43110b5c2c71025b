#include "runtime/planner/visits.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

class VisitList {
 public:
  VisitList(const PlanRequest& request, const Tiling& tiling)
      : r_(request), model_(*request.model), tiling_(tiling), loss_(static_cast<int>(model_.units.size()) - 1) {}

  void add_step(std::span<const int> micro_batches) {
    add_forward({0, loss_}, micro_batches);
    add_backward({0, loss_}, micro_batches);
  }
  // Adds the forward of the units of a piece, except the loss.
  void add_forward(const UnitRange& piece, std::span<const int> micro_batches) {
    for (int unit = piece.first; unit <= std::min(piece.last, loss_ - 1); ++unit)
      add_calls(TaskKind::forward, unit, micro_batches);
  }
  // Adds the loss, if the piece has it, and the backward of the units.
  void add_backward(const UnitRange& piece, std::span<const int> micro_batches) {
    if (piece.has(loss_)) add_loss(micro_batches);
    if (r_.forward_only) return;
    const int lowest = std::max(piece.first, static_cast<int>(model_.lowest_trained()));
    int unit = std::min(piece.last, loss_ - 1);
    for (auto segment = r_.segments.rbegin(); segment != r_.segments.rend(); ++segment) {
      if (!piece.has(segment->first)) continue;
      for (; unit > segment->last; --unit) add_backward(unit, false, micro_batches);
      if (segment->recompute)
        for (int again = segment->first; again < segment->last; ++again)
          add_calls(TaskKind::recompute, again, micro_batches);
      for (; unit >= segment->first; --unit)
        add_backward(unit, segment->recompute && unit == segment->last, micro_batches);
    }
    for (; unit >= lowest; --unit) add_backward(unit, false, micro_batches);
  }
  // The message comes before the visits that are added next.
  void add_message(const StageStep& step) { messages_.push_back(step); }
  std::vector<Visit> take() {
    if (!messages_.empty()) visits_.back().after = std::move(messages_);
    return std::move(visits_);
  }

 private:
  Visit& add(int unit, int part, bool needs_parameters = true) {
    return visits_.emplace_back(Visit{unit, part, needs_parameters, {}, std::exchange(messages_, {})});
  }
  const models::Unit& unit_of(int unit) const { return *model_.units[static_cast<std::size_t>(unit)]; }
  int parts_of(int unit) const { return static_cast<int>(unit_of(unit).parts().size()); }

  // `kind`: forward or recompute.
  void add_calls(TaskKind kind, int unit, std::span<const int> micro_batches) {
    if (tiling_.tiled(unit)) {
      for (const int g : micro_batches) add_parts(kind, unit, g, parts_of(unit), true);
      return;
    }
    Visit& visit = add(unit, -1);
    for (const int g : micro_batches) visit.calls.push_back({kind, unit, g});
  }
  void add_parts(TaskKind kind, int unit, int g, int parts, bool wants_output) {
    for (int part = 0; part < parts; ++part)
      add(unit, part).calls.push_back({kind, unit, g, wants_output, part, part == 0, part + 1 == parts});
  }

  void add_backward(int unit, bool recompute, std::span<const int> micro_batches) {
    const bool needs_parameters = unit_of(unit).ports().parameters_in_backward;
    if (!tiling_.tiled(unit)) {
      Visit& visit = add(unit, -1, needs_parameters);
      for (const int g : micro_batches) {
        if (recompute) visit.calls.push_back({TaskKind::recompute, unit, g, false});
        visit.calls.push_back({TaskKind::backward, unit, g});
      }
      return;
    }
    const int parts = parts_of(unit), first = static_cast<int>(unit_of(unit).first_backward_part());
    for (const int g : micro_batches) {
      if (recompute) add_parts(TaskKind::recompute, unit, g, static_cast<int>(unit_of(unit).saving_parts()), false);
      for (int part = parts - 1; part >= first; --part)
        add(unit, part, needs_parameters)
            .calls.push_back({TaskKind::backward, unit, g, true, part, part + 1 == parts, part == first});
    }
  }

  void add_loss(std::span<const int> micro_batches) {
    if (!tiling_.table_tiled()) {
      Visit& visit = add(loss_, -1);
      for (const int g : micro_batches) visit.calls.push_back({TaskKind::loss, loss_, g});
      return;
    }
    using models::LossStep;
    const int norm = tiling_.tiled(loss_) ? 0 : -1;  // a head that shares its table has only the norm of its own
    const auto step = [&](int g, LossStep s, int tile) {
      const bool of_norm = s == LossStep::norm || s == LossStep::finish;
      Visit& visit = of_norm ? add(loss_, norm) : add(tiling_.table_unit(), tiling_.table_first() + tile);
      visit.calls.push_back({TaskKind::loss, loss_, g, true, tile, s == LossStep::norm, s == LossStep::finish, s});
    };
    for (const int g : micro_batches) {
      step(g, LossStep::norm, 0);
      for (const LossStep s : {LossStep::statistics, LossStep::gradients}) {
        if (s == LossStep::gradients && r_.forward_only) break;
        for (int tile = 0; tile < tiling_.tiles(); ++tile) step(g, s, tile);
      }
      step(g, LossStep::finish, 0);
    }
  }

  const PlanRequest& r_;
  const models::Model& model_;
  const Tiling& tiling_;
  const int loss_;
  std::vector<Visit> visits_;
  std::vector<StageStep> messages_;  // not in a visit yet
};

}  // namespace

Tiling::Tiling(const PlanRequest& request, const Layout& layout)
    : table_unit_(static_cast<int>(layout.units.size()) - 1),
      table_first_(1),
      // Generation needs the logits of all tiles together, but tiles leave only the values that a loss needs.
      tiles_(request.shape.cache > 0 ? 0 : static_cast<int>(request.model->loss_unit().table_tiles())) {
  const models::Model& model = *request.model;
  const auto parts_of = [&](int unit) { return model.units[static_cast<std::size_t>(unit)]->parts(); };
  const int loss = table_unit_;
  if (const auto& shared = layout.units.back().shared) {
    table_unit_ = shared->unit;
    table_first_ = 0;
    const auto parts = parts_of(table_unit_);  // the first tile of a table is a part of its unit
    if (tiles_ > 0) {
      const auto first = std::ranges::find_if(parts, [&](const models::Part& part) {
        const models::ElementRange& range = part.in(shared->pool());
        return range.size() > 0 && range.begin == shared->elements.begin;
      });
      STRATA_CHECK(first != parts.end());
      table_first_ = static_cast<int>(first - parts.begin());
    }
  }
  STRATA_CHECK(tiles_ == 0 || static_cast<int>(parts_of(loss).size()) == 1 + (table_unit_ == loss ? tiles_ : 0));
  // A unit needs all shared elements together, except a loss with a tiled table.
  const auto by_tiles = [&](int unit) { return unit == loss && tiles_ > 0; };
  const Placement& placement = request.placement;
  const bool single = request.mesh.data() == 1;
  const bool sharded = placement.parameters.pieces(request.mesh) > 1;
  const bool come = sharded || placement.parameters.tier != Tier::device;
  const bool possible =
      request.tile_bytes > 0 && come && (single || placement.gradients.sharded() || request.forward_only);
  for (int unit = 0; unit <= loss; ++unit) {
    const UnitLayout& u = layout.units[static_cast<std::size_t>(unit)];
    const bool in_parts = parts_of(unit).size() > 1 && (by_tiles(unit) || (unit != loss && !u.shared)) &&
                          std::ranges::all_of(u.sharers, by_tiles) && std::ranges::all_of(u.frozen_sharers, by_tiles);
    tiled_.push_back(possible && in_parts && u.gathered_bytes(format_of(request.shape.dtype)) > request.tile_bytes);
  }
}

std::vector<Visit> make_visits(const PlanRequest& request, const Tiling& tiling) {
  VisitList visits(request, tiling);
  std::vector<int> all(static_cast<std::size_t>(request.accumulation));
  std::iota(all.begin(), all.end(), 0);
  if (request.mesh.stages > 1) {
    const int stages = request.mesh.stages, chunks = static_cast<int>(request.pieces.size()) / stages;
    // Without backwards, any number of micro-batches goes through the pieces.
    const bool forwards_first = request.forward_only && chunks > 1;
    const Pipeline pipeline{stages, chunks, forwards_first ? Schedule::all_forward_all_backward : request.schedule};
    for (const StageStep& step : steps_of_stage(request.stage, pipeline, request.accumulation)) {
      const UnitRange& piece = request.pieces[static_cast<std::size_t>(step.piece)];
      if (step.action == StageStep::Action::forward)
        visits.add_forward(piece, {&step.micro_batch, 1});
      else if (step.action == StageStep::Action::backward)
        visits.add_backward(piece, {&step.micro_batch, 1});
      else
        visits.add_message(step);
    }
  } else if (request.vertical) {
    visits.add_step(all);
  } else {
    for (const int& g : all) visits.add_step({&g, 1});
  }
  return visits.take();
}

}  // namespace strata::runtime

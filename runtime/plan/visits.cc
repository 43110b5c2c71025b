#include "runtime/plan/visits.h"

#include <span>

#include "base/error.h"

namespace strata::runtime {
namespace {

class VisitList {
 public:
  VisitList(const PlanRequest& request, const Tiling& tiling)
      : r_(request), model_(*request.model), tiling_(tiling), head_(static_cast<int>(model_.units.size()) - 1) {}

  void add_step(std::span<const int> micro_batches) {
    for (int unit = 0; unit < head_; ++unit) add_calls(TaskKind::forward, unit, micro_batches);
    add_loss(micro_batches);
    if (r_.forward_only) return;
    for (auto segment = r_.segments.rbegin(); segment != r_.segments.rend(); ++segment) {
      if (segment->recompute)
        for (int unit = segment->first; unit < segment->last; ++unit)
          add_calls(TaskKind::recompute, unit, micro_batches);
      for (int unit = segment->last; unit >= segment->first; --unit)
        add_backward(unit, segment->recompute && unit == segment->last, micro_batches);
    }
    add_backward(0, false, micro_batches);
  }
  std::vector<Visit> take() { return std::move(visits_); }

 private:
  Visit& add(int unit, int part, bool needs_parameters = true) {
    return visits_.emplace_back(Visit{unit, part, needs_parameters, {}});
  }
  const models::Unit& unit_of(int unit) const { return *model_.units[static_cast<std::size_t>(unit)]; }
  int parts_of(int unit) const { return static_cast<int>(unit_of(unit).parts().size()); }

  // Forward or recompute.
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
    const bool needs_parameters = unit > 0;
    if (!tiling_.tiled(unit)) {
      Visit& visit = add(unit, -1, needs_parameters);
      for (const int g : micro_batches) {
        if (recompute) visit.calls.push_back({TaskKind::recompute, unit, g, false});
        visit.calls.push_back({TaskKind::backward, unit, g});
      }
      return;
    }
    const int parts = parts_of(unit);
    for (const int g : micro_batches) {
      if (recompute) add_parts(TaskKind::recompute, unit, g, static_cast<int>(unit_of(unit).saving_parts()), false);
      for (int part = parts - 1; part >= 0; --part)
        add(unit, part, needs_parameters)
            .calls.push_back({TaskKind::backward, unit, g, true, part, part + 1 == parts, part == 0});
    }
  }

  void add_loss(std::span<const int> micro_batches) {
    if (!tiling_.table_tiled()) {
      Visit& visit = add(head_, -1);
      for (const int g : micro_batches) visit.calls.push_back({TaskKind::loss, head_, g});
      return;
    }
    using models::LossStep;
    const int norm = tiling_.tiled(head_) ? 0 : -1;  // a tied head is its norm
    const auto step = [&](int g, LossStep s, int tile) {
      const bool of_norm = s == LossStep::norm || s == LossStep::finish;
      Visit& visit = of_norm ? add(head_, norm) : add(tiling_.table_unit(), tiling_.table_first() + tile);
      visit.calls.push_back({TaskKind::loss, head_, g, true, tile, s == LossStep::norm, s == LossStep::finish, s});
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
  const int head_;
  std::vector<Visit> visits_;
};

}  // namespace

Tiling::Tiling(const PlanRequest& request, const Layout& layout) {
  const models::Model& model = *request.model;
  const bool possible = request.tile_bytes > 0 && request.ranks > 1 && request.placement.parameters.sharded &&
                        (request.placement.gradients.sharded || request.forward_only);
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    tiled_.push_back(possible && model.units[unit]->parts().size() > 1 &&
                     layout.units[unit].padded * size_of(request.shape.dtype) > request.tile_bytes);
  const bool tied = model.tied_size > 0;
  table_unit_ = tied ? 0 : static_cast<int>(model.units.size()) - 1;
  table_first_ = tied ? 0 : 1;
  STRATA_CHECK(!tied || model.head().parts().size() == 1);
  // Behind a tied table lie positions.
  for (const models::Part& part : model.units[static_cast<std::size_t>(table_unit_)]->parts())
    if (!tied || part.begin < model.vocabulary * model.hidden) ++tiles_;
  tiles_ -= table_first_;
}

std::vector<Visit> make_visits(const PlanRequest& request, const Tiling& tiling) {
  VisitList visits(request, tiling);
  std::vector<int> all;
  for (int g = 0; g < request.accumulation; ++g) all.push_back(g);
  if (request.vertical) {
    visits.add_step(all);
  } else {
    for (const int& g : all) visits.add_step({&g, 1});
  }
  return visits.take();
}

}  // namespace strata::runtime

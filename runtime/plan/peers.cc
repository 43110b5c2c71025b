#include "runtime/plan/peers.h"

#include "runtime/plan/plan.h"

namespace strata::runtime {

comm::Group group_of(const StepPlan& plan, Peers peers, int rank) {
  const Mesh& mesh = plan.mesh();
  const auto pieces = [&](const StatePlacement& state) { return state.pieces(mesh); };
  const auto group = [&] {
    switch (peers) {
      case Peers::parameters:
        return mesh.group(rank, pieces(plan.placement.parameters), 1);
      case Peers::updates:
        return mesh.group(rank, plan.gathers_updated() ? pieces(plan.placement.optimizer) : 1,
                          pieces(plan.placement.parameters));
      case Peers::gradients:
        return mesh.group(rank, mesh.data(), plan.sums_in_nodes() ? plan.reduce_group : 1);
      case Peers::sums:
        return mesh.group(rank, mesh.data(), pieces(plan.placement.sums()));
      case Peers::node:
        return mesh.group(rank, plan.sums_in_nodes() ? plan.reduce_group : 1, 1);
      case Peers::tensor:
        return mesh.along(Axis::tensor, rank);
      case Peers::stages:
        return mesh.along(Axis::stage, rank);
      case Peers::all:
        break;
    }
    return comm::all_ranks(rank, mesh.world);
  }();
  return group.size() > 1 ? group : comm::all_ranks(rank, mesh.world);
}

}  // namespace strata::runtime

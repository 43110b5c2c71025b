#include "runtime/plan/peers.h"

namespace strata::runtime {

comm::Group group_of(const StepPlan& plan, Peers peers, int rank) {
  const Mesh& mesh = plan.mesh();
  const auto pieces = [&](const StatePlacement& state) { return state.pieces(mesh); };
  const auto group = [&] {
    switch (peers) {
      case Peers::parameters:
        return mesh.group(rank, pieces(plan.placement.parameters), 1);
      case Peers::updates:
        return mesh.group(rank, plan.spreads() ? pieces(plan.placement.optimizer) : 1,
                          pieces(plan.placement.parameters));
      case Peers::gradients:
        return mesh.group(rank, mesh.data(), 1);
      case Peers::sums:
        break;
    }
    return mesh.group(rank, mesh.data(), pieces(plan.placement.sums()));
  }();
  return group.size() > 1 ? group : comm::all_ranks(rank, mesh.world);
}

Peers peers_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::gather:
      return Peers::parameters;
    case TaskKind::spread:
      return Peers::updates;
    case TaskKind::gather_sums:
      return Peers::sums;
    default:
      return Peers::gradients;
  }
}

}  // namespace strata::runtime

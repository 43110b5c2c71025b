#include "runtime/tasks/stage_link.h"

#include "runtime/tasks/pass.h"

namespace strata::runtime {
namespace {

Role role_of(const Crossing& crossing, bool sends) {
  return crossing.backward ? Role::residual : sends ? Role::y : Role::x;
}

Task& add_task(Draft& draft, TaskKind kind, const Crossing& crossing) {
  const LaneId lane = crossing.backward ? LaneId::stage_backward : LaneId::stage_forward;
  return draft.add_task(kind, lane, crossing.unit, crossing.micro_batch);
}

std::size_t bytes_of(const Site& site) {
  return stored_bytes(format_of(site.plan.dtype), UnitCall::activations(site));
}

comm::Communicator& over(Site& site, const Task& task) {
  return task.lane == LaneId::stage_backward ? site.over.stage_backward : site.over.stage_forward;
}

}  // namespace

void SendToStage::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::send, crossing);
  Draft::use(task, crossing.buffer, role_of(crossing, true), Access::read);
  const std::size_t bytes = draft.bytes_of(draft.request.shape.tokens() * draft.model.hidden);
  const Mesh& mesh = draft.plan.mesh();
  const int stage = draft.request.stage, to = stage + (crossing.backward ? -1 : 1);
  const std::vector<int> nodes = mesh.nodes();
  const auto node_of = [&](int of) {
    return nodes.empty() ? 0 : nodes[static_cast<std::size_t>(mesh.rank_of(0, 0, of))];
  };
  const bool far = node_of(stage) != node_of(to);
  task.cost.sent_bytes = static_cast<double>(bytes);
  task.cost.between_bytes = static_cast<double>(far ? bytes : 0);
  draft.plan.comm_bytes.point_to_point += bytes;
  if (far) draft.plan.comm_bytes.between_nodes += bytes;
}

void SendToStage::run(Site& site, const Task& task, device::Lane&) {
  const bool backward = task.lane == LaneId::stage_backward;
  const device::View view = site.view(task, backward ? Role::residual : Role::y);
  over(site, task).send(view.data, bytes_of(site), site.rank.stage + (backward ? -1 : 1));
}

void ReceiveFromStage::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::receive, crossing);
  Draft::use(task, crossing.buffer, role_of(crossing, false), Access::write);
}

void ReceiveFromStage::run(Site& site, const Task& task, device::Lane&) {
  const bool backward = task.lane == LaneId::stage_backward;
  const device::View view = site.view(task, backward ? Role::residual : Role::x);
  over(site, task).receive(view.data, bytes_of(site), site.rank.stage + (backward ? 1 : -1));
}

}  // namespace strata::runtime

#include "runtime/tasks/stage_link.h"

namespace strata::runtime {
namespace {

Task& add_task(Draft& draft, TaskKind kind, const StageMessage& message, Role role, Access access) {
  const LaneId lane = message.backward ? LaneId::stage_backward : LaneId::stage_forward;
  Task& task = draft.add_task(kind, lane, message.unit, message.micro_batch);
  task.peer = message.peer;
  Draft::use(task, draft.whole(message.buffer), role, access);
  return task;
}

comm::Communicator& communicator_of(TaskContext& context, const Task& task) {
  return task.lane == LaneId::stage_backward ? context.communicators.stage_backward
                                             : context.communicators.stage_forward;
}

}  // namespace

void SendToStage::add(Draft& draft) const {
  Task& task = add_task(draft, TaskKind::send, message, Role::source, Access::read);
  const Mesh& mesh = draft.plan.mesh();
  const auto node_of = [&](int stage) { return mesh.node_of(mesh.rank_of(0, 0, stage)); };
  const bool far = node_of(draft.request.stage) != node_of(message.peer);
  const std::size_t bytes = task.uses[0].bytes;
  task.cost.sent_bytes = static_cast<double>(bytes);
  task.cost.between_bytes = static_cast<double>(far ? bytes : 0);
  draft.plan.comm_bytes.point_to_point += bytes;
  if (far) draft.plan.comm_bytes.between_nodes += bytes;
}

void SendToStage::run(TaskContext& context, const Task& task, device::Lane&) {
  const device::View view = context.view(task, Role::source);
  communicator_of(context, task).send(view.data, task.uses[0].bytes, task.peer);
}

void ReceiveFromStage::add(Draft& draft) const {
  add_task(draft, TaskKind::receive, message, Role::target, Access::write);
}

void ReceiveFromStage::run(TaskContext& context, const Task& task, device::Lane&) {
  const device::View view = context.view(task, Role::target);
  communicator_of(context, task).receive(view.data, task.uses[0].bytes, task.peer);
}

}  // namespace strata::runtime

#include "runtime/planner/boundary_tasks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "device/step_scalars.h"
#include "runtime/plan/step_state.h"
#include "runtime/tasks/copy.h"
#include "runtime/tasks/step_boundary.h"

namespace strata::runtime {
namespace {

using Control = ControlBuffers;

}  // namespace

BoundaryTasks::BoundaryTasks(Draft& draft) : d_(draft) {
  StepPlan& plan = d_.plan;
  plan.host_control = plan.control;
  if (plan.device.kind != device::Kind::cpu)
    for (const Member which :
         {&Control::batch, &Control::state, &Control::losses, &Control::squares, &Control::scores}) {
      if (plan.control.*which < 0) continue;
      const Buffer& b = plan.buffers[static_cast<std::size_t>(plan.control.*which)];
      plan.host_control.*which =
          d_.add_buffer(fmt::format("{} of the host", b.name), Kind::staging, Tier::host, b.bytes, true);
    }
  if (const std::size_t bytes = d_.request.checkpoint_staging)
    checkpoint_ = d_.add_buffer("checkpoint", Kind::staging, Tier::host, bytes, true);
}

void BoundaryTasks::copy(bool up, std::initializer_list<Member> buffers) {
  if (d_.plan.device.kind == device::Kind::cpu) return;
  Copy copy{.unit = -1, .pairs = {}, .boundary = true};
  for (const Member which : buffers) {
    if (d_.plan.control.*which < 0) continue;
    const Slice of_device{d_.plan.control.*which}, of_host{d_.plan.host_control.*which};
    copy.pairs.push_back(up ? Copy::Pair{of_host, of_device} : Copy::Pair{of_device, of_host});
  }
  copy.add(d_);
}

// These tasks come first, so that they may run until the step's first update. In a cyclic plan, they may run longer
// still: a checkpoint begins with a drain, so the next step has no pending update.
void BoundaryTasks::save_state() {
  if (checkpoint_ < 0) return;
  for (const int unit : d_.plan.own.all())
    Save{.unit = unit, .staging = {.buffer = checkpoint_, .starts = unit == d_.plan.own.first()}}.add(d_);
  Publish{.staging = checkpoint_}.add(d_);
}

void BoundaryTasks::begin() {
  if (d_.plan.cyclic) StepBoundary::add_copy_scalars(d_);
  StepBoundary::add_write(d_);
  copy(true, {&Control::batch, &Control::state, &Control::losses, &Control::squares});
}

void BoundaryTasks::end() {
  copy(false, {&Control::state, &Control::losses, &Control::scores});
  StepBoundary::add_read(d_);
}

namespace {

// A buffer that has contents before the first step.
int add_filled(Draft& draft, std::string name, Kind kind, Tier tier, std::size_t bytes) {
  const int buffer = draft.add_buffer(std::move(name), kind, tier, bytes, true);
  draft.plan.buffers[index(buffer)].filled = true;
  return buffer;
}

// No task uses these buffers. The host uses them between steps.
void add_scores(Draft& draft) {
  const PlanRequest& r = draft.request;
  const bool on_cpu = draft.plan.device.kind == device::Kind::cpu;
  const Tier of_host = on_cpu ? Tier::device : Tier::host;
  if (r.score_bytes)
    draft.plan.score_buffer = add_filled(draft, "kept scores", Kind::workspace, of_host, r.score_bytes);
  if (r.chunk_bytes == 0) return;
  const std::size_t bytes = index(r.mesh.world) * r.chunk_bytes;
  RankChunks& chunks = draft.plan.chunks;
  chunks.bytes = r.chunk_bytes;
  chunks.buffer = add_filled(draft, "scores of all ranks", Kind::staging, Tier::device, bytes);
  chunks.host_buffer =
      on_cpu ? chunks.buffer : add_filled(draft, "scores of all ranks, on the host", Kind::staging, Tier::host, bytes);
}

}  // namespace

std::vector<int> add_lasting_buffers(Draft& draft) {
  const PlanRequest& r = draft.request;
  const models::Model& model = draft.model;
  const auto add = [&](const char* name, Kind kind, std::size_t bytes) {
    return draft.add_buffer(name, kind, Tier::device, bytes, true);
  };
  ControlBuffers& control = draft.plan.control;
  control.batch = add("batch", Kind::activations, index(std::max(r.accumulation, r.batches)) * model.batch.bytes());
  control.state = add("state", Kind::workspace, sizeof(StepState));
  control.losses = add("losses", Kind::workspace, LossState::bytes(model.units.size()));
  if (!r.forward_only) control.squares = add("squares", Kind::workspace, sizeof(SquareState));
  if (model.constants_bytes)
    control.constants = add_filled(draft, "constants", Kind::workspace, Tier::device, model.constants_bytes);
  if (r.index_bytes)
    draft.plan.index_buffer =
        add_filled(draft, "index of sequences and labels", Kind::workspace, Tier::host, r.index_bytes);
  add_scores(draft);
  if (!draft.owns(draft.last()))
    control.scores = -1;  // the last stage has them
  else if (r.shape.cache > 0)
    control.scores = add("logits", Kind::activations, device::fp32_bytes(model.vocabulary));
  else if (const std::size_t stride = model.loss_unit().score_stride(); r.forward_only && stride > 0)
    control.scores = add("scores", Kind::activations, device::fp32_bytes(model.loss_rows() * stride));
  std::vector<int> caches(index(draft.units()), -1);
  for (int unit = 0; unit < draft.units(); ++unit)
    if (const std::size_t cache = draft.owns(unit) ? draft.unit(unit).bytes().cache : 0)
      caches[index(unit)] = add_filled(
          draft, (draft.unit(unit).as_loss() ? "DoRA's scales of " : "keys and values of ") + draft.unit(unit).name(),
          Kind::activations, Tier::device, cache);
  if (draft.plan.cyclic)
    control.pending =
        draft.add_buffer("pending scalars", Kind::workspace, Tier::host, sizeof(device::StepScalars), true);
  return caches;
}

}  // namespace strata::runtime

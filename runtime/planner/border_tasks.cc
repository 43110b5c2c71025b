#include "runtime/planner/border_tasks.h"

#include <fmt/format.h>

#include "runtime/tasks/border.h"
#include "runtime/tasks/copy.h"
#include "runtime/tasks/save.h"

namespace strata::runtime {
namespace {

using Control = ControlBuffers;

}  // namespace

BorderTasks::BorderTasks(Draft& draft) : d_(draft) {
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

void BorderTasks::copy(bool up, std::initializer_list<Member> buffers) {
  if (d_.plan.device.kind == device::Kind::cpu) return;
  Copy copy{.unit = -1, .pairs = {}, .border = true};
  for (const Member which : buffers) {
    if (d_.plan.control.*which < 0) continue;
    const Slice of_device{d_.plan.control.*which}, of_host{d_.plan.host_control.*which};
    copy.pairs.push_back(up ? Copy::Pair{of_host, of_device} : Copy::Pair{of_device, of_host});
  }
  copy.add(d_);
}

// These tasks come first, so that they may run until the step's first update. In a cyclic plan they may run even
// longer: a checkpoint begins with a drain, so the next step has no pending update.
void BorderTasks::save_state() {
  if (checkpoint_ < 0) return;
  for (const int unit : d_.plan.own.all())
    Save{.unit = unit, .staging = {.buffer = checkpoint_, .starts = unit == d_.plan.own.first()}}.add(d_);
  Publish{.staging = checkpoint_}.add(d_);
}

void BorderTasks::begin() {
  if (d_.plan.cyclic) Border::add_carry(d_);
  Border::add_write(d_);
  copy(true, {&Control::batch, &Control::state, &Control::losses, &Control::squares});
}

void BorderTasks::end() {
  copy(false, {&Control::state, &Control::losses, &Control::scores});
  Border::add_read(d_);
}

}  // namespace strata::runtime

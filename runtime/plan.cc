#include "runtime/plan.h"

#include <fmt/format.h>

namespace strata::runtime {

int Task::buffer(Role role) const {
  for (const Use& use : uses)
    if (use.role == role) return use.buffer;
  return -1;
}

std::string name_of(const Task& task, const models::Model& model) {
  std::string name{kTaskNames[static_cast<std::size_t>(task.kind)]};
  if (task.unit >= 0) name += " " + model.units[static_cast<std::size_t>(task.unit)]->name();
  if (task.tied) name += " (tied)";
  if (task.micro_batch >= 0) name += fmt::format(", micro-batch {}", task.micro_batch);
  return name;
}

}  // namespace strata::runtime

#include <fmt/format.h>

#include "base/quantity.h"
#include "runtime/job/make_job.h"

namespace strata::runtime {

std::string memory_text(const Memory& memory) {
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (memory[tier].peak)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kTierNames[tier], bytes_text(memory[tier].peak));
  return text;
}

std::string memory_text(const StepPlan& plan) {
  std::string text = memory_text(plan.memory);
  if (text.starts_with(kTierNames[0]))
    text.replace(0, kTierNames[0].size(), tier_title(0, plan.device.kind == device::Kind::cpu));
  return text;
}

std::string_view order_name(const StepPlan& plan) {
  return plan.vertical ? "vertical" : "horizontal";
}

std::string_view tier_title(std::size_t tier, bool on_cpu) {
  return tier == 0 && on_cpu ? "RAM for the model" : kTierNames[tier];
}

std::string tiling_text(const StepPlan& plan) {
  if (plan.tile_bytes == 0) return {};
  return fmt::format("parameters of units above {} gathered in tiles", bytes_text(plan.tile_bytes));
}

}  // namespace strata::runtime

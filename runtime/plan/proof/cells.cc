#include "runtime/plan/proof/cells.h"

#include <algorithm>

#include "base/index.h"

namespace strata::runtime {
Cells::Cells(const StepPlan& plan) {
  for (const Buffer& b : plan.buffers) {
    cut(b.tier, b.offset);
    cut(b.tier, b.offset + b.bytes);
  }
  for (const Task& task : plan.tasks)
    for (const Use& use : task.uses) {
      if (use.bytes == 0 || use.own) continue;  // the whole buffer: cut above
      const Buffer& b = plan.buffers[static_cast<std::size_t>(use.buffer)];
      const auto [begin, end] = touched_by(use, b);
      cut(b.tier, begin);
      cut(b.tier, end);
    }
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    auto& cuts = cuts_[tier];
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    first_[tier] = size_;
    size_ += static_cast<int>(cuts.size());
  }
}

Cells::Range Cells::touching(Tier tier, const ByteRange& bytes) const {
  const auto& cuts = cuts_[index(tier)];
  const auto after = std::upper_bound(cuts.begin(), cuts.end(), bytes.begin);
  return {first_[index(tier)] + static_cast<int>(after - cuts.begin()) - 1, cell_at(tier, bytes.end)};
}

std::size_t Cells::begin_of(Tier tier, int cell) const {
  return cuts_[index(tier)][static_cast<std::size_t>(cell - first_[index(tier)])];
}

void Cells::cut(Tier tier, std::size_t at) {
  auto& cuts = cuts_[index(tier)];
  if (cuts.empty() || cuts.back() != at) cuts.push_back(at);
}

int Cells::cell_at(Tier tier, std::size_t at) const {
  const auto& cuts = cuts_[index(tier)];
  return first_[index(tier)] + static_cast<int>(std::lower_bound(cuts.begin(), cuts.end(), at) - cuts.begin());
}

}  // namespace strata::runtime

#include "runtime/objective/causal_lm.h"

namespace strata::runtime {
namespace {

std::optional<std::uint32_t> all_rows(const Recipe&, std::uint32_t) {
  return std::nullopt;
}

}  // namespace

constinit const ObjectiveRules kCausalLm = {nullptr, all_rows, false, true, judged_by_tokens, look_for_labels};

}  // namespace strata::runtime

#include "runtime/objective/causal_lm.h"

#include "runtime/data/sequences/next_token.h"

namespace strata::runtime {
namespace {

std::shared_ptr<const Labelling> next_token(const Recipe&, std::span<const TokenFile>, std::uint64_t) {
  return std::make_shared<NextToken>();
}
std::optional<std::uint32_t> all_rows(const Recipe&, std::uint32_t) {
  return std::nullopt;
}

}  // namespace

constinit const ObjectiveRules kCausalLm = {next_token, all_rows, false, true, judged_by_tokens, look_for_labels};

}  // namespace strata::runtime

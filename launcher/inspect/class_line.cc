#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/inspect/inspect.h"
#include "launcher/screen/printable.h"
#include "models/classes.h"

namespace strata::launcher {
namespace {

// "3 classes (maybe, no, yes)".
std::string list_of(std::span<const std::string> names) {
  constexpr std::size_t kShown = 12;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    list += (i > 0 ? ", " : "") + printable(excerpt(names[i], 64));
  return fmt::format("{} ({}{})", counted(names.size(), "class", "classes"), list,
                     names.size() > kShown ? ", ..." : "");
}

// How the texts were read: ", pairs, at most 128 tokens".
std::string reading(bool pairs, std::int64_t max_length) {
  return fmt::format("{}{}", pairs ? ", pairs of texts" : "",
                     max_length > 0 ? fmt::format(", at most {} tokens", max_length) : "");
}

}  // namespace

std::string labels_line(const runtime::TokenSidecar::Labels& labels) {
  return fmt::format("labels: {} of {}{}{}\n", printable(labels.problem), counted(labels.count, "document"),
                     labels.names.empty() ? "" : ", " + list_of(labels.names),
                     reading(labels.pairs, labels.max_length));
}

std::string classes_line(const models::Config& config) {
  using models::Objective;
  const auto objective = models::named_objective(config);
  if (objective != Objective::sequence_classification && objective != Objective::token_classification) return "";
  const models::Classes classes = models::read_classes(config, *objective);
  const auto trained_on = [](const char* what) { return fmt::format("{}.{}", models::kTrainedOn, what); };
  const std::string tokenizer = config.text_or(trained_on("tokenizer"), "");
  const std::string length = trained_on("max_length");
  return fmt::format(
      "predicts: {}{}{}\n",
      classes.target == device::ClassTarget::number ? "a number per text"
      : objective == Objective::token_classification
          ? list_of(classes.names) + ", one per word"
          : list_of(classes.names) +
                (classes.target == device::ClassTarget::many ? ", any of them per text" : ", one per text"),
      tokenizer.empty() ? "" : "; trained on tokens of " + printable(tokenizer),
      reading(config.bool_or(trained_on("pairs"), false), config.has(length) ? config.require_int(length) : 0));
}

}  // namespace strata::launcher

#include "text/classes/truncation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace strata::text {
namespace {

constexpr std::array<std::pair<std::string_view, Truncation>, 4> kTruncationNames = {
    {{"longest_first", Truncation::longest_first},
     {"only_first", Truncation::only_first},
     {"only_second", Truncation::only_second},
     {"do_not_truncate", Truncation::none}}};

}  // namespace

std::optional<Truncation> truncation(std::string_view name) {
  for (const auto& [known, value] : kTruncationNames)
    if (known == name) return value;
  return std::nullopt;
}

std::string_view name_of(Truncation truncation) {
  return std::find_if(kTruncationNames.begin(), kTruncationNames.end(),
                      [&](const auto& known) { return known.second == truncation; })
      ->first;
}

void require_possible(Truncation truncation, bool pairs) {
  if (!pairs && truncation == Truncation::only_second)
    fail(Exit::usage, "--truncation only_second is for pairs: give --pair, or use longest_first");
}

std::optional<TextLengths> truncated(const TextLengths& lengths, std::size_t most, Truncation truncation) {
  if (lengths.sum() <= most) return lengths;
  const std::size_t excess = lengths.sum() - most;
  switch (truncation) {
    case Truncation::only_first:
      if (lengths.first <= excess) return std::nullopt;
      return TextLengths{lengths.first - excess, lengths.second};
    case Truncation::only_second:
      if (lengths.second <= excess) return std::nullopt;
      return TextLengths{lengths.first, lengths.second - excess};
    case Truncation::none:
      return std::nullopt;
    case Truncation::longest_first:
      break;
  }
  const bool second_is_short = lengths.second < lengths.first;
  std::size_t shorter = std::min(lengths.first, lengths.second);
  std::size_t longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  return second_is_short ? TextLengths{longer, shorter} : TextLengths{shorter, longer};
}

}  // namespace strata::text

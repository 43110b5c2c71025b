#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/words.h"
#include "text/chat/record.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;

constexpr std::string_view kFlags =
    "train training trainable train_on_turn loss loss_mask loss_weight loss_scale weight masked";
constexpr std::string_view kDetails = "train_detail training_detail";

}  // namespace

bool is_turn_mask(std::string_view field) {
  return has_word(kFlags, field) || has_word(kDetails, field);
}

std::optional<bool> trained(const Value& message, std::size_t turn) {
  std::optional<bool> out;
  std::string said;
  for (const auto& [key, value] : message.pairs()) {
    const std::string field = key.to_text();
    if (value.is(Kind::none)) continue;
    if (has_word(kDetails, field) && !(value.is(Kind::list) && value.items().empty()))
      throw RecordFault{
          fmt::format("turn {} has \"{}\", a mask of parts of its text, but a turn is trained on completely or not at "
                      "all: leave the field out, and set \"train\" to true or false",
                      turn, field)};
    if (!has_word(kFlags, field)) continue;
    if (!value.is_number() || (value.real() != 0 && value.real() != 1))
      throw RecordFault{fmt::format("turn {}: expected true, false, 0 or 1 in \"{}\", found {}", turn, field,
                                    value.is_number() ? value.to_text() : std::string(kind_text(value)))};
    const bool counts = (value.real() != 0) != (field == "masked");
    if (out && *out != counts)
      throw RecordFault{fmt::format("\"{}\" and \"{}\" of turn {} contradict each other", said, field, turn)};
    out = counts;
    said = field;
  }
  return out;
}

}  // namespace strata::text

#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "text/template/values/value.h"

namespace strata::text {

// Whether a field tells trainers about its turn, under any of their names: `train` in axolotl, `loss` in ms-swift,
// `weight` in OpenAI's and other formats. A template sees none of these fields.
bool is_turn_mask(std::string_view field);

// Whether the turn counts as a label; nullopt if it does not say. A flag is true or false, 1 or 0. turn: its number
// from 1, for messages. Throws RecordFault for other values, for flags that contradict each other, and for masks of
// parts of a turn (`train_detail`).
std::optional<bool> trained(const jinja::Value& message, std::size_t turn);

}  // namespace strata::text

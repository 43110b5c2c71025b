#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

#include "text/template/values/value.h"

namespace strata::text {

// What a turn says of itself to trainers, under the names that they have for it: `train` of axolotl, `loss` of
// ms-swift, `weight` of OpenAI and others. A template sees none of these fields.
bool is_turn_mask(std::string_view field);

// Whether the turn counts as a label: nothing if it does not say. A flag is true or false, 1 or 0. turn: its number
// from 1, for messages. Throws RecordFault for other values, for flags that contradict each other, and for masks of
// parts of a turn (`train_detail`).
std::optional<bool> trained(const jinja::Value& message, std::size_t turn);

}  // namespace strata::text

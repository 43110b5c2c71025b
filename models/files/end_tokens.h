#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace strata::models {

// The tokens that end a text: `eos_token_id` in generation_config.json, otherwise in config.json, a number or a list.
// Empty if neither has it. Throws Error{corrupt} if it is something else.
std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory);

}  // namespace strata::models

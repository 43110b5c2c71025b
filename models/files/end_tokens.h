#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace strata::models {

// Tokens at which a text ends: `eos_token_id` of generation_config.json, else of config.json; a number or a list, none
// if neither names one. Throws Error{corrupt} if it is something else.
std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory);

}  // namespace strata::models

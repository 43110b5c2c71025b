#pragma once

#include <string_view>

namespace strata::runtime {

// Phrases that several messages about names of other programs share: what the key here takes.
inline constexpr std::string_view kSequences = "in sequences of data.seq_len tokens";
inline constexpr std::string_view kTokenFile = "a token file that strata tokenize writes";
inline constexpr std::string_view kPrecision = R"("bf16", "fp16" or "fp32")";
inline constexpr std::string_view kUnits = "in units: embedding, a block, head";
inline constexpr std::string_view kRecompute = R"("block", "sqrt", "none" or a list of blocks)";
inline constexpr std::string_view kTier = R"("device", "host" or "nvme")";

}  // namespace strata::runtime

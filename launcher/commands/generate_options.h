#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct GenerateOptions {
  std::filesystem::path model;
  std::optional<std::string> prompt;
  std::vector<std::uint32_t> prompt_tokens;  // instead of a text; tokens are then written as numbers
  // A file with messages; "-": standard input, or turns typed at the terminal
  std::optional<std::string> chat = std::nullopt;
  std::optional<std::filesystem::path> chat_template = std::nullopt;  // the tokenizer folder's own without it
  std::optional<std::filesystem::path> tokenizer;                     // "byte", or another directory than the model's
  std::int64_t max_new_tokens = 128;
  double temperature = 0, top_p = 1;
  std::uint64_t seed = 0;
  std::optional<std::string> precision;
  std::vector<std::string> sets;  // zero.*, memory.*, device.*, comm.*
  std::optional<std::filesystem::path> json;
  bool force = false;  // json is written over whatever it is
};

}  // namespace strata::launcher

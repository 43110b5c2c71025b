#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct PredictOptions {
  std::filesystem::path model, out;
  std::string input;  // .jsonl, .csv or .tsv; "-": JSONL from standard input
  double threshold = 0.5;
  std::string field = "text";
  std::optional<std::string> pair = std::nullopt;
  std::optional<std::int64_t> max_length = std::nullopt;          // default: the training's
  std::optional<std::string> truncation = std::nullopt;           // default: the training's
  std::optional<std::filesystem::path> tokenizer = std::nullopt;  // default: the model's
  std::optional<std::string> precision = std::nullopt;            // default: that of the weights
  std::vector<std::string> sets = {};
  std::optional<std::filesystem::path> adapter = std::nullopt;  // also in `sets`
  bool force = false;
};

}  // namespace strata::launcher

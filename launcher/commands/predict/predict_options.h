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
  std::optional<std::int64_t> max_length = std::nullopt;          // that of training without it
  std::optional<std::string> truncation = std::nullopt;           // likewise
  std::optional<std::filesystem::path> tokenizer = std::nullopt;  // the model's without it
  std::optional<std::string> precision = std::nullopt;            // of the weights without it
  std::vector<std::string> sets = {};
  bool force = false;
};

}  // namespace strata::launcher

#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct PredictOptions {
  std::filesystem::path model, out;
  std::string input;  // .jsonl, .csv or .tsv
  double threshold = 0.5;
  std::string field = "text";
  std::optional<std::string> pair = std::nullopt;
  std::optional<std::int64_t> max_length = std::nullopt;
  std::optional<std::filesystem::path> tokenizer = std::nullopt;  // the model's without it
  std::optional<std::string> precision = std::nullopt;            // of the weights without it
  std::vector<std::string> sets = {};
  bool force = false;
};

// `strata predict`: what a classifier says of each text, in the order of the input: the same on any number of ranks.
// Keeps what is done in OUT.part, from which the same command goes on. Returns the exit code; throws Error.
int predict(const PredictOptions& options);

}  // namespace strata::launcher

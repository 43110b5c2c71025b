#pragma once
// launcher/commands/ has a file or a room per command: launcher/command_line/ reads its options, and what it returns is
// the exit code. Here are those that are a file.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace strata::launcher {

struct EvalOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::optional<std::filesystem::path> json;
  bool force = false;  // json is written over whatever it is
};

// `strata eval`: loss and perplexity on data.validation, by one rank of several. Prints them, and writes them as JSON.
// Returns the exit code; throws Error.
int eval(const EvalOptions& options);

struct ExportOptions {
  std::filesystem::path from;  // a checkpoint, a folder of checkpoints, or a Hugging Face directory
  std::filesystem::path to;
  std::string dtype = "fp32";
  bool adapter = false;  // the adapter alone, as peft's folder
  bool merge = false;    // there has to be one, which is merged
};

// `strata export`: a Hugging Face directory that transformers loads as it is. Returns the exit code; throws Error.
int export_model(const ExportOptions& options);

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

// `strata generate`: what follows the prompt, to stdout as it comes; one rank of several, of which rank 0 speaks.
// Returns the exit code; throws Error.
int generate(const GenerateOptions& options);

// `strata doctor`: what this machine offers and what to fix, one line each ("ok", "note" or "fix"), into `out`; of each
// folder (the current one if there are none), how the nvme tier would be read and written there. Returns the exit
// code: 1 if training cannot work at all, or a GPU that is there or a folder cannot be used.
int doctor(std::ostream& out, std::span<const std::filesystem::path> folders);

}  // namespace strata::launcher

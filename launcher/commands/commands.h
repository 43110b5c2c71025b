#pragma once
// launcher/commands/ has a file or folder per command. launcher/command_line/ reads its options; its return value is
// the exit code. This header declares the commands with a single file.
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
  std::optional<std::filesystem::path> adapter;  // also in `sets`
  std::optional<std::filesystem::path> json;
  bool force = false;  // overwrites json, whatever it is
};

// `strata eval`: loss and perplexity on data.validation, run as one of several ranks. Prints both and writes them as
// JSON. Returns the exit code; throws Error.
int eval(const EvalOptions& options);

struct ExportOptions {
  std::filesystem::path from;  // a checkpoint, a folder of checkpoints, or a Hugging Face directory
  std::filesystem::path to;
  std::string dtype = "fp32";
  bool adapter = false;  // export only the adapter, as peft's folder
  bool merge = false;    // merge the adapter, which must be present
  bool quantised = false;
};

// `strata export`: writes a Hugging Face directory that transformers loads without changes. Returns the exit code;
// throws Error.
int export_model(const ExportOptions& options);

struct GenerateOptions {
  std::filesystem::path model;
  std::optional<std::string> prompt;
  std::vector<std::uint32_t> prompt_tokens;  // instead of a text; then output tokens are printed as numbers
  // A file with messages; "-": standard input, or turns typed at the terminal.
  std::optional<std::string> chat = std::nullopt;
  std::optional<std::filesystem::path> chat_template = std::nullopt;  // default: the tokenizer folder's own
  std::optional<std::filesystem::path> tokenizer;                     // "byte", or a directory other than the model's
  std::int64_t max_new_tokens = 128;
  double temperature = 0, top_p = 1;
  std::uint64_t seed = 0;
  std::optional<std::string> precision;
  std::vector<std::string> sets;                                // zero.*, memory.*, device.*, comm.*
  std::optional<std::filesystem::path> adapter = std::nullopt;  // also in `sets`
  std::optional<std::filesystem::path> json;
  bool force = false;  // overwrites json, whatever it is
};

// `strata generate`: prints what follows the prompt to stdout as it is generated. Runs as one of several ranks; rank 0
// prints. Returns the exit code; throws Error.
int generate(const GenerateOptions& options);

// `strata doctor`: reports to `out` what this machine offers and what to fix, one line each ("ok", "note" or "fix"),
// and for each folder (by default the current one) how the nvme tier would be read and written there. Returns the exit
// code: 1 if training cannot work at all, or if an existing GPU or a folder cannot be used.
int doctor(std::ostream& out, std::span<const std::filesystem::path> folders);

}  // namespace strata::launcher

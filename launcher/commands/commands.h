#pragma once
// launcher/commands/ has a file or folder for each command. launcher/command_line/ parses its options, and its return
// value is the exit code. This header declares the commands.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace strata::launcher {

struct TrainOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  bool force = false;  // overwrites report.* files, whatever they contain
};

// `strata train`: runs one rank. Returns the exit code; throws Error.
int train(const TrainOptions& options);

struct PlanOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::optional<int> ranks;           // default: the number that mpirun started, otherwise 1
  std::optional<int> rank;            // whose plan is shown; default: a rank of the stage with the largest device peak
  std::optional<int> ranks_per_node;  // default: all, up to the cores or GPUs of this machine
  std::optional<std::filesystem::path> json, trace, machine;
  std::optional<std::filesystem::path> html;
  bool stages = false;     // also print a table of ZeRO stages 0 to 3
  bool table = false;      // also print a table of precisions, recomputation and stages
  bool max_batch = false;  // plan for the largest micro-batch that fits, whatever the recipe says
  bool verbose = false;    // also print how many tasks of each kind a step has
  bool force = false;      // overwrites json, trace and html, whatever they contain
};

// `strata plan`: shows what a run over `ranks` ranks will do and need, without running anything. With a machine file,
// also shows how long a step takes, what bounds it, and what would help. Returns the exit code; throws Error.
int plan(const PlanOptions& options);

struct EvalOptions {
  std::optional<std::filesystem::path> recipe;
  std::vector<std::string> sets;
  std::optional<std::filesystem::path> adapter;  // also in `sets`
  std::optional<std::filesystem::path> json;
  bool force = false;  // overwrites json, whatever it contains
};

// `strata eval`: computes loss and perplexity on data.validation, as one of several ranks. Prints them and writes them
// as JSON. Returns the exit code; throws Error.
int eval(const EvalOptions& options);

struct ExportOptions {
  std::filesystem::path from;  // a checkpoint, a folder of checkpoints, or a Hugging Face directory
  std::filesystem::path to;
  std::optional<std::string> dtype;  // fp32 unless given
  bool adapter = false;              // export only the adapter, as peft's folder
  bool merge = false;                // merge the adapter, which must be present
  bool quantised = false;
};

// `strata export`: writes a Hugging Face directory that transformers loads without changes. Returns the exit code;
// throws Error.
int export_model(const ExportOptions& options);

struct GenerateOptions {
  std::filesystem::path model;
  std::optional<std::string> prompt;
  std::vector<std::uint32_t> prompt_tokens;  // instead of a text; output tokens are then printed as numbers
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
  bool force = false;  // overwrites json, whatever it contains
};

// `strata generate`: prints the continuation of the prompt to stdout as it is generated. Runs as one of several ranks;
// rank 0 prints. Returns the exit code; throws Error.
int generate(const GenerateOptions& options);

// `strata doctor`: reports to `out` what this machine offers and what to fix, one line each ("ok", "note" or "fix"),
// and how the nvme tier would be read and written in each folder (by default the current one). Returns the exit code: 1
// if training cannot work at all, or if an existing GPU or a folder cannot be used.
int doctor(std::ostream& out, std::span<const std::filesystem::path> folders);

struct PredictOptions {
  std::filesystem::path model, out;
  std::string input;  // .jsonl, .csv or .tsv; "-": JSONL from standard input
  double threshold = 0.5;
  std::string field = "text";
  std::optional<std::string> pair = std::nullopt;
  std::optional<std::int64_t> max_length = std::nullopt;          // default: as in training
  std::optional<std::string> truncation = std::nullopt;           // default: as in training
  std::optional<std::filesystem::path> tokenizer = std::nullopt;  // default: the model's
  std::optional<std::string> precision = std::nullopt;            // default: the weights' precision
  std::vector<std::string> sets = {};
  std::optional<std::filesystem::path> adapter = std::nullopt;  // also in `sets`
  bool force = false;
};

// `strata predict`: writes a classifier's scores for each text, in the order of the input, the same for any number of
// ranks. OUT.part holds finished work, from which the same command resumes. Returns the exit code; throws Error.
int predict(const PredictOptions& options);

struct TokenizeOptions {
  std::string tokenizer;      // "byte", or a Hugging Face directory
  std::filesystem::path out;  // OUT.bin; OUT.bin.json is written next to it
  std::vector<std::string>
      inputs;  // text files; .jsonl, .csv or .tsv files with one document per record; "-": standard input
  std::optional<std::string> field = std::nullopt;  // a JSONL line's field, default "text"; if given, "-" is JSONL, too
  std::optional<std::string> eot = std::nullopt;    // token between documents; default: the tokenizer's own
  bool no_eot = false;
  bool add_special = false;  // put the tokenizer's template around each document
  // text, chat, alpaca, sharegpt, completion (JSONL), csv or tsv. Default: from the file names and the first record.
  std::optional<std::string> format = std::nullopt;
  std::optional<std::filesystem::path> chat_template = std::nullopt;  // default: the tokenizer folder's own
  std::optional<std::string> train_on = std::nullopt;                 // assistant, last, completion or all
  std::vector<std::string> labels = {};                               // fields with the class of a text
  std::optional<std::string> pair = std::nullopt;                     // field of a second text
  std::optional<std::int64_t> max_length = std::nullopt;              // tokens of a document
  std::optional<std::string> truncation = std::nullopt;
  int threads = 0;     // 0: one per core
  bool force = false;  // overwrites the output files, whatever they contain
};

// `strata tokenize`: writes documents (text files, lines of JSONL) one after another, with an end-of-text token
// between documents, but none with `byte`. Inputs are read in pieces, so they may be of any size, and the tokens do not
// depend on the number of threads. Either all output files are replaced or none. Returns the exit code; throws Error.
int tokenize(const TokenizeOptions& options);

}  // namespace strata::launcher

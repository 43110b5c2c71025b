#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_writer.h"
#include "base/number.h"
#include "launcher/command_line/argument_kinds.h"
#include "launcher/command_line/commands.h"
#include "launcher/commands/commands.h"
#include "launcher/inspect/inspect.h"

namespace strata::launcher {
namespace {

// Parses token ids separated by commas, in one argument or several. Throws CLI::ValidationError.
std::vector<std::uint32_t> token_ids(const std::vector<std::string>& arguments) {
  std::vector<std::uint32_t> out;
  for (std::string_view text : arguments) {
    for (bool last = false; !last;) {
      const std::size_t comma = text.find(',');
      last = comma == std::string_view::npos;
      const std::string_view item = text.substr(0, comma);
      const auto token = parse_number<std::uint32_t>(item);
      if (!token)
        throw CLI::ValidationError(
            "--prompt-tokens",
            fmt::format("\"{}\" is not a token: give ids from 0 to 4294967295, separated by commas, such as 1,2,3",
                        item.substr(0, 64)));
      out.push_back(*token);
      if (!last) text.remove_prefix(comma + 1);
    }
  }
  return out;
}

// Checks --format, which does not take JSONL, because that is not a format of records.
CLI::Validator records_or_table() {
  const auto check = [](std::string& text) -> std::string {
    for (const char* known : {"text", "chat", "alpaca", "sharegpt", "completion", "csv", "tsv"})
      if (text == known) return {};
    const bool lines = text == "jsonl" || text == "json" || text == "ndjson";
    return fmt::format(
        "{} is not text, chat, alpaca, sharegpt, completion, csv or tsv{}", text,
        lines ? "; a file named .jsonl is read as JSON lines, and --format says what its records are" : "");
  };
  return {check, "{text,chat,alpaca,sharegpt,completion,csv,tsv}", "format"};
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  const auto options = std::make_shared<GenerateOptions>();
  auto* command = app.add_subcommand("generate", "continue a prompt, or answer a chat; text to stdout");
  auto* model = add_path(command, "MODEL", options->model,
                         "Hugging Face directory, checkpoint, folder of checkpoints, or peft folder")
                    ->option_text("TEXT REQUIRED");
  add_path(command, "--model", options->model, "MODEL, by name")->excludes(model);
  add_adapter(command, *options, "a peft folder with an adapter of that model");
  auto* text = command->add_option("--prompt", options->prompt, "text to continue");
  given_repeatedly(command->add_option_function<std::vector<std::string>>(
                       "--prompt-tokens",
                       [options](const auto& arguments) { options->prompt_tokens = token_ids(arguments); },
                       "token ids to continue, instead of a text: 1,2,3"))
      ->excludes(text);
  add_path(
      command, "--chat", options->chat,
      "messages to answer: a JSON file, or - for standard input; on a terminal, - reads what you type, turn by turn")
      ->excludes(text)
      ->excludes("--prompt-tokens");
  add_path(
      command, "--chat-template", options->chat_template,
      "Jinja template for --chat: a file, or the name of one in the tokenizer's folder (default: the folder's own)")
      ->needs("--chat");
  add_path(command, "--tokenizer", options->tokenizer, "byte, or a Hugging Face directory; default: the model's");
  add_checked(command, "--max-new-tokens", options->max_new_tokens, integer(1, std::int64_t{1} << 20),
              "maximum number of tokens to generate (default: 128)");
  add_checked(command, "--temperature", options->temperature, within(0, 1e6),
              "sampling temperature; 0 (default) takes the most likely token");
  add_checked(command, "--top-p", options->top_p, within(1e-9, 1),
              "sample from the most likely tokens whose probabilities add up to this (default: 1, all of them)");
  add_checked(command, "--seed", options->seed, integer(0, std::numeric_limits<std::int64_t>::max()),
              "random seed for sampling (default: 0)");
  add_checked(command, "--precision", options->precision, CLI::IsMember({"fp32", "bf16", "fp16"}),
              "fp32, bf16 or fp16; default: as the weights are stored");
  add_sets(command, *options);
  add_path(command, "--json", options->json, "write tokens and speed as JSON");
  add_force(command, *options);
  command->callback([options, &status] {
    if (options->model.empty()) throw CLI::RequiredError("--model");
    status = generate(*options);
  });
}

void add_truncation(CLI::App* command, std::optional<std::string>& truncation, std::string_view otherwise) {
  add_checked(command, "--truncation", truncation,
              CLI::IsMember({"longest_first", "only_first", "only_second", "do_not_truncate"}),
              fmt::format("which of two texts is truncated: longest_first, only_first, only_second, do_not_truncate "
                          "(default: {})",
                          otherwise));
}

void add_predict(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "predict",
                  "classify texts: labels and probabilities; mpirun -n N strata predict ... for N ranks", predict);
  add_path(command, "MODEL", options->model,
           "Hugging Face directory, checkpoint, folder of checkpoints, or peft folder")
      ->required();
  add_adapter(command, *options, "a peft folder with an adapter of that model");
  add_path(command, "IN", options->input,
           ".jsonl, .csv or .tsv with a text in each record, compressed or not; - for JSONL from standard input")
      ->required();
  add_path(command, "-o,--out", options->out, "JSONL to write: a line for each text, in the order of the input")
      ->required();
  add_checked(command, "--threshold", options->threshold, within(0, 1),
              "multi-label: minimum probability to assign a class (default: 0.5)");
  command->add_option("--field", options->field, "record field that holds the text (default: text)");
  command->add_option("--pair", options->pair, "record field that holds the second text");
  add_checked(command, "--max-length", options->max_length, integer(1, std::int64_t{1} << 24),
              "maximum number of tokens per text (default: as in training, otherwise 512 or the model's positions)");
  add_truncation(command, options->truncation, "as in training, otherwise longest_first");
  add_path(command, "--tokenizer", options->tokenizer, "byte, or a Hugging Face directory; default: the model's");
  add_checked(command, "--precision", options->precision, CLI::IsMember({"fp32", "bf16", "fp16"}),
              "fp32, bf16 or fp16; default: as the weights are stored");
  add_sets(command, *options);
  add_force(command, *options);
}

void add_export(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "export", "write a checkpoint as a Hugging Face directory", export_model);
  add_path(command, "CHECKPOINT", options->from,
           "a checkpoint, a folder of them (the newest complete one), a peft folder, or a model")
      ->required();
  add_path(command, "-o,--out", options->to, "new folder to write")->required();
  auto* dtype = add_checked(command, "--dtype", options->dtype, CLI::IsMember({"fp32", "bf16"}), "fp32 or bf16 (fp32)");
  auto* merge = command->add_flag("--merge", options->merge, "merge an adapter into its model (which is the default)");
  command->add_flag("--adapter", options->adapter, "the adapter alone, as a peft folder")
      ->excludes(dtype)
      ->excludes(merge);
  command
      ->add_flag("--quantized", options->quantised,
                 "write tensors that are stored in 4 bits (model.frozen_format) as bitsandbytes does, for transformers")
      ->excludes("--adapter")
      ->excludes(merge);
}

void add_tokenize(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "tokenize", "turn text, JSONL, tables or conversations into a token file", tokenize);
  add_path(command, "--tokenizer", options->tokenizer, "byte, or a Hugging Face directory (tokenizer.json or .model)")
      ->required();
  add_path(command, "-o,--out", options->out,
           "token file to write, OUT.bin; OUT.bin.json and others are written next to it")
      ->required();
  add_path(command, "IN", options->inputs,
           "text files, .jsonl, .csv or .tsv files with a document in each record, compressed or not, or -")
      ->required();
  command->add_option("--field", options->field,
                      "record field that holds the text (default: text); also reads standard input (-) as JSONL");
  add_checked(command, "--format", options->format, records_or_table(),
              "format of the records: text, chat, alpaca, sharegpt, completion; or of the files: csv, tsv (default: "
              "from their names and the first record)");
  add_path(command, "--chat-template", options->chat_template,
           "Jinja template for conversations: a file, or the name of one in the tokenizer's folder (default: the "
           "folder's own)");
  add_checked(command, "--train-on", options->train_on, CLI::IsMember({"assistant", "last", "completion", "all"}),
              "the part to train on: assistant, last (its last turn), completion, all (default: assistant for chat "
              "and sharegpt, completion for prompt/completion and alpaca, all for text)");
  given_repeatedly(command->add_option("--labels", options->labels,
                                       "field(s) with the class label; also adds the tokenizer's special tokens"))
      ->delimiter(',');
  command->add_option("--pair", options->pair, "record field that holds the second text");
  add_checked(command, "--max-length", options->max_length, integer(1, std::int64_t{1} << 24),
              "maximum number of tokens per text, including those of the template");
  add_truncation(command, options->truncation, "longest_first");
  command->add_option("--eot", options->eot,
                      "token between documents (default: the tokenizer's end-of-text token; byte: none)");
  command->add_flag("--no-eot", options->no_eot, "no token between documents");
  command->add_flag("--add-special", options->add_special, "add the tokenizer's special tokens around each document");
  add_checked(command, "--threads", options->threads, integer(1, 1024), "threads (default: all cores)");
  add_force(command, *options);
}

void add_inspect(CLI::App& app, int& status) {
  struct Asked {
    std::filesystem::path path, other;
    bool every_tensor = false;
    std::uint64_t shown = 0;
    std::optional<std::filesystem::path> tokenizer;
  };
  const auto asked = std::make_shared<Asked>();
  auto* command = app.add_subcommand(
      "inspect", "show what a checkpoint, token file, safetensors file or Hugging Face directory contains");
  add_path(command, "PATH", asked->path, "what to inspect")->required();
  auto* other = add_path(command, "OTHER", asked->other, "a second checkpoint, to compare with the first");
  command
      ->add_flag("--tensors", asked->every_tensor,
                 "show mean, deviation and non-finite numbers of each tensor (default: only of tensors with a fault)")
      ->excludes(other);
  add_checked(command, "--show", asked->shown, integer(std::int64_t{1}, std::uint64_t{1} << 32),
              "show the first N documents of a token file as text; labels in colour, or in brackets")
      ->excludes(other);
  add_path(command, "--tokenizer", asked->tokenizer, "for --show: byte, or a Hugging Face directory");
  command->callback([asked, &status] {
    if (asked->shown > 0)
      status = show_documents(asked->path, asked->shown, asked->tokenizer, isatty(STDOUT_FILENO) == 1, std::cout);
    else if (asked->other.empty())
      status = inspect(asked->path, asked->every_tensor ? Tensors::all : Tensors::wrong, std::cout);
    else
      status = inspect(asked->path, asked->other, std::cout);
  });
}

}  // namespace strata::launcher

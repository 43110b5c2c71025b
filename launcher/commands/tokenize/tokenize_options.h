#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct TokenizeOptions {
  std::string tokenizer;      // "byte", or a Hugging Face directory
  std::filesystem::path out;  // OUT.bin; OUT.bin.json is written next to it
  std::vector<std::string>
      inputs;  // text files, .jsonl, .csv or .tsv with a document in each record; "-": standard input
  std::optional<std::string> field = std::nullopt;  // a JSONL line's, default "text"; if given, "-" is JSONL, too
  std::optional<std::string> eot = std::nullopt;    // token between documents; default: the tokenizer's own
  bool no_eot = false;
  bool add_special = false;  // put the tokenizer's template around each document
  // text, chat, alpaca, sharegpt, completion (JSONL), csv or tsv. Default: decided by file names and the first record.
  std::optional<std::string> format = std::nullopt;
  std::optional<std::filesystem::path> chat_template = std::nullopt;  // default: the tokenizer folder's own
  std::optional<std::string> train_on = std::nullopt;                 // assistant, last, completion or all
  std::vector<std::string> labels = {};                               // fields that hold a text's class
  std::optional<std::string> pair = std::nullopt;                     // field of a second text
  std::optional<std::int64_t> max_length = std::nullopt;              // tokens of a document
  std::optional<std::string> truncation = std::nullopt;
  int threads = 0;     // 0: one per core
  bool force = false;  // overwrites the output files, whatever they are
};

}  // namespace strata::launcher

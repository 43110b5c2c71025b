#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

struct TokenizeOptions {
  std::string tokenizer;      // "byte", or a Hugging Face directory
  std::filesystem::path out;  // OUT.bin; OUT.bin.json is written beside it
  std::vector<std::string>
      inputs;  // text files, .jsonl, .csv or .tsv with a document in each record; "-": standard input
  std::optional<std::string> field = std::nullopt;  // of a JSONL line, "text" without it; given, "-" is JSONL too
  std::optional<std::string> eot = std::nullopt;    // token between documents; the tokenizer's own without it
  bool no_eot = false;
  bool add_special = false;  // with the tokenizer's template around each document
  // text, chat, alpaca, sharegpt, completion (JSONL), csv or tsv; without it the names of files and the first record
  // say
  std::optional<std::string> format = std::nullopt;
  std::optional<std::filesystem::path> chat_template = std::nullopt;  // the tokenizer's folder's own without it
  std::optional<std::string> train_on = std::nullopt;                 // assistant, last, completion or all
  std::vector<std::string> labels = {};                               // fields that say of which class a text is
  std::optional<std::string> pair = std::nullopt;                     // of a second text
  std::optional<std::int64_t> max_length = std::nullopt;              // tokens of a document
  std::optional<std::string> truncation = std::nullopt;
  int threads = 0;     // 0: as many as there are cores
  bool force = false;  // both are written over whatever they are
};

}  // namespace strata::launcher

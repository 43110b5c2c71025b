#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::runtime {

// The content of OUT.bin.json, which describes OUT.bin (docs/formats.md).
struct TokenSidecar {
  std::int64_t vocab_size = 0;
  int width = 2;  // bytes per token: 2 or 4
  std::string tokenizer;
  std::string tokenizer_hash;  // XXH3-64 of what defines the tokenizer, 16 hex digits
  std::string hash;            // XXH3-64 of the file's tokens, 16 hex digits
  std::uint64_t count = 0;
  // A file that belongs to the tokens: its count, and the XXH3-64 of its bytes.
  struct Companion {
    std::uint64_t count;
    std::string hash;
  };
  std::optional<Companion> documents = {};  // where documents begin; the count of documents
  std::optional<Companion> mask = {};       // which tokens count as labels; their count. Without it, all do
  std::optional<Companion> types = {};      // token types; the count of ones. Without it, all are 0
  // The file with the label of each document, one line each (docs/formats.md, "Labels"). The classes' names; empty for
  // a regression.
  struct Labels {
    std::uint64_t count;
    std::string hash;
    std::string problem;  // see LabelSummary
    std::vector<std::string> names;
    bool pairs = false;    // each document is two texts
    bool vectors = false;  // labels were lists of 0 and 1, whose columns are the names LABEL_0, LABEL_1 and so on
    // How texts were read: the records' fields, the maximum number of tokens, and the text that was cut. 0: all tokens
    // were kept.
    std::string field = {}, pair = {};
    std::int64_t max_length = 0;
    std::string truncation = {};
  };
  std::optional<Labels> labels = {};
  // From the tokenizer: the mask token, if it has one; and the tokens that are not text. nullopt: not in the sidecar.
  std::optional<std::uint32_t> mask_token = {};
  std::optional<std::vector<std::uint32_t>> special_tokens = {};
  // For conversations: the template that wrote them, and the XXH3-64 of its texts, 16 hex digits; otherwise empty.
  std::string chat_template, chat_template_hash;
};
inline std::filesystem::path sidecar_path(std::filesystem::path token_file) {
  return token_file += ".json";
}
inline std::filesystem::path documents_path(std::filesystem::path token_file) {
  return token_file += ".documents";
}
inline std::filesystem::path mask_path(std::filesystem::path token_file) {
  return token_file += ".mask";
}
inline std::filesystem::path types_path(std::filesystem::path token_file) {
  return token_file += ".types";
}
inline std::filesystem::path labels_path(std::filesystem::path token_file) {
  return token_file += ".labels.jsonl";
}
// nullopt if there is no such file. Throws Error{corrupt}.
std::optional<TokenSidecar> read_sidecar(const std::filesystem::path& token_file);
std::string to_json(const TokenSidecar& sidecar);

}  // namespace strata::runtime

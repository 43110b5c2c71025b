#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::runtime {

// What `strata tokenize` says of OUT.bin in OUT.bin.json (docs/formats.md).
struct TokenSidecar {
  std::int64_t vocab_size = 0;
  int width = 2;  // bytes per token: 2 or 4
  std::string tokenizer;
  std::string tokenizer_hash;  // XXH3-64 of what defines it, 16 hex digits
  std::string hash;            // XXH3-64 of the file's tokens, 16 hex digits
  std::uint64_t count = 0;
  // A file beside the tokens: how much it says, and the XXH3-64 of its bytes.
  struct Beside {
    std::uint64_t count;
    std::string hash;
  };
  std::optional<Beside> documents = {};  // where they begin: their number
  std::optional<Beside> mask = {};       // which tokens count as labels: how many do; without it all do
  std::optional<Beside> types = {};      // token types: how many are 1; without it all are 0
  // What each document is (docs/formats.md, "Labels"): a line each; the classes' names, none of a regression.
  struct Labels {
    std::uint64_t count;
    std::string hash;
    std::string problem;  // as LabelSummary has it
    std::vector<std::string> names;
    bool pairs = false;    // of two texts each
    bool vectors = false;  // labels were lists of 0 and 1, whose columns are the names LABEL_0, LABEL_1 and so on
    // How texts were read: the records' fields, and tokens at most with the text that lost some; 0: all were kept.
    std::string field = {}, pair = {};
    std::int64_t max_length = 0;
    std::string truncation = {};
  };
  std::optional<Labels> labels = {};
  // Of the tokenizer: the token that stands for one to be predicted, if it has one; and those that are no text.
  // nullopt: the sidecar does not say.
  std::optional<std::uint32_t> mask_token = {};
  std::optional<std::vector<std::uint32_t>> special_tokens = {};
  // Of conversations: what wrote them, and XXH3-64 of its texts, 16 hex digits; empty for others.
  std::string chat_template, chat_template_hash;
};
std::filesystem::path sidecar_path(const std::filesystem::path& token_file);
std::filesystem::path documents_path(const std::filesystem::path& token_file);
std::filesystem::path mask_path(const std::filesystem::path& token_file);
std::filesystem::path types_path(const std::filesystem::path& token_file);
std::filesystem::path labels_path(const std::filesystem::path& token_file);
// nullopt if there is no such file. Throws Error{corrupt}.
std::optional<TokenSidecar> read_sidecar(const std::filesystem::path& token_file);
std::string to_json(const TokenSidecar& sidecar);

}  // namespace strata::runtime

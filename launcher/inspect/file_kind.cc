#include "launcher/inspect/file_kind.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/files/mapped_file.h"
#include "base/shell_word.h"
#include "runtime/checkpoint/manifest.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 24;

bool has(const simdjson::dom::element& root, std::string_view key) {
  return root[key].error() == simdjson::SUCCESS;
}

// Of TOML: the key stands in every machine file, and no recipe has it.
std::string kind_of_toml(const fs::path& path, std::string_view text) {
  if (text.find("task_overhead_us") != std::string_view::npos)
    return fmt::format("is a machine file of strata calibrate: strata plan RECIPE --machine {} predicts with it",
                       shell_word(path.string()));
  return fmt::format("is a recipe: strata plan {} shows what it will do and need", shell_word(path.string()));
}

constexpr std::string_view kDocuments =
    "holds documents, one per line: strata tokenize makes a token file of it, which inspect then shows";

std::string kind_of_lines(const simdjson::dom::element& line) {
  if (has(line, "step") && (has(line, "loss") || has(line, "eval_loss")))
    return "is the report.jsonl of a run, an object for each step: any tool for JSON lines reads it";
  return std::string(kDocuments);
}

std::string kind_of_object(const fs::path& path, const simdjson::dom::element& root) {
  static constexpr std::array<std::string_view, 8> kOfModels = {
      "config.json",       "generation_config.json",  "tokenizer.json", "tokenizer_config.json",
      "added_tokens.json", "special_tokens_map.json", "vocab.json",     "preprocessor_config.json"};
  const std::string name = path.filename().string();
  const std::string folder = path.has_parent_path() ? shell_word(path.parent_path().string()) : ".";
  if (name == runtime::kManifestName)
    return fmt::format("is the manifest of a checkpoint: strata inspect {} shows all of it", folder);
  if (std::find(kOfModels.begin(), kOfModels.end(), name) != kOfModels.end())
    return fmt::format("belongs to a model: strata inspect {} shows its weights", folder);
  if (has(root, "width") && has(root, "vocab_size") && has(root, "count"))
    return fmt::format("is the sidecar of a token file: strata inspect {} shows both",
                       shell_word((path.parent_path() / path.stem()).string()));
  if (has(root, "traceEvents")) return "is the timeline of a step: open it at ui.perfetto.dev";
  if (has(root, "weights_hash")) return "is the report.summary of a run: any tool for JSON reads it";
  return "is JSON and no header of safetensors: any tool for JSON reads it";
}

// The object that `text` is, where it is one; read by `use`.
template <typename Use>
std::string with_object(std::string_view text, Use&& use) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS || !root.is_object()) return "";
  return use(root);
}

}  // namespace

std::string other_kind_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(".bin")) return "";
  const MappedFile file(path);
  const auto bytes = file.bytes().first(std::min(file.bytes().size(), kMostBytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (path.extension() == ".toml") return kind_of_toml(path, text);
  if (path.extension() == ".model")
    return fmt::format("is a tokenizer: strata tokenize --tokenizer {} makes tokens with it",
                       shell_word(path.string()));
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  const bool jsonl = path.extension() == ".jsonl";
  if (jsonl || text.find_first_not_of(" \t\r\n", end) != std::string_view::npos) {
    std::string kind = with_object(text.substr(begin, end - begin), kind_of_lines);
    if (!kind.empty() || jsonl) return kind.empty() ? std::string(kDocuments) : kind;
  }
  return with_object(text, [&](const auto& root) { return kind_of_object(path, root); });
}

}  // namespace strata::launcher

#include "runtime/run/tokenizer_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/classes.h"
#include "text/pipeline/tokenizer_hash.h"
#include "text/tokenizer.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

bool names_tokenizer(const TokenFile& file) {
  return file.sidecar() && !file.sidecar()->tokenizer_hash.empty();
}

// Hashes of the files that define the directory's tokenizer, as sidecars store them. Tokens may come from any of these
// files, and from a copy in another folder.
std::vector<std::string> tokenizer_hashes(const fs::path& directory) {
  std::vector<std::string> out;
  for (const char* name : text::kTokenizerFiles) {
    std::error_code ignored;
    if (fs::exists(directory / name, ignored)) out.push_back(text::tokenizer_hash(directory / name));
  }
  return out;
}

}  // namespace

void require_tokens_of_model(const Workload& workload, bool trains) {
  const Recipe::Data& data = workload.recipe.data;
  if (!workload.model_path() || data.any_tokenizer) return;
  std::vector<TokenFile> files;
  const auto add = [&](std::span<const std::string> patterns, const char* key) {
    for (const fs::path& path : expand_patterns(patterns, key)) files.emplace_back(path, std::nullopt);
  };
  for (std::size_t i = 0; trains && i < data.train.size(); ++i) add(data.train[i].files, "data.train");
  add(data.validation, "data.validation");
  require_tokens_of_model(workload, files);
}

void require_tokens_of_model(const Workload& workload, std::span<const TokenFile> files) {
  const std::optional<fs::path>& model = workload.model_path();
  if (!model || workload.recipe.data.any_tokenizer || std::ranges::none_of(files, names_tokenizer)) return;
  const auto directory = ModelFolder(*model).hugging_face();
  const std::vector<std::string> hashes = directory ? tokenizer_hashes(*directory) : std::vector<std::string>{};
  if (hashes.empty()) return;
  for (const TokenFile& file : files)
    if (names_tokenizer(file) &&
        std::find(hashes.begin(), hashes.end(), file.sidecar()->tokenizer_hash) == hashes.end())
      fail(Exit::usage,
           "{} holds tokens of the tokenizer {}, but the model in {} has a different one: tokenize the texts again "
           "with strata tokenize --tokenizer {}, or accept the tokens as they are with data.any_tokenizer = true",
           file.path().string(), file.sidecar()->tokenizer, directory->string(), directory->string());
}

void require_tokenizer_of_classifier(const ModelFolder& folder, const models::Config& config,
                                     const text::Tokenizer& tokenizer, const fs::path& where) {
  std::vector<std::string> given = tokenizer_hashes(where);
  given.push_back(tokenizer.hash());
  const auto is_given = [&](const std::string& hash) { return std::ranges::find(given, hash) != given.end(); };
  constexpr std::string_view kAccept = "accept it as it is with --set data.any_tokenizer=true";
  const std::string trained_on = config.text_or(fmt::format("{}.tokenizer_hash", models::kTrainedOn), "");
  if (!trained_on.empty()) {
    if (!is_given(trained_on))
      fail(Exit::usage,
           "{} was trained on tokens of the tokenizer {}, but {} is a different one: give that one with --tokenizer, "
           "or {}",
           folder.path().string(), config.text_or(fmt::format("{}.tokenizer", models::kTrainedOn), ""), where.string(),
           kAccept);
    return;
  }
  const auto directory = folder.hugging_face();
  const std::vector<std::string> own = directory ? tokenizer_hashes(*directory) : std::vector<std::string>{};
  if (!own.empty() && std::ranges::none_of(own, is_given))
    fail(Exit::usage, "{} has a different tokenizer than {}: leave --tokenizer out, or {}", folder.path().string(),
         where.string(), kAccept);
}

void require_types_of_model(const models::Model& model, std::span<const TokenFile> files) {
  // DistilBERT and the causal families have no token types and are given none. Their tokenizers' templates still name
  // types for pairs, which transformers drops, too.
  constexpr std::array<std::string_view, 4> kOfTypes = {"bert", "roberta", "xlm-roberta", "camembert"};
  if (model.batch.types || std::ranges::find(kOfTypes, model.family) == kOfTypes.end()) return;
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->types)
      fail(Exit::usage,
           "{} holds tokens of two types (pairs of texts), but {} models have only one type: tokenize again with the "
           "model's own tokenizer",
           file.path().string(), model.family);
}

}  // namespace strata::runtime

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/files/mapped_file.h"
#include "text/folder/class_components.h"
#include "text/folder/folder_files.h"
#include "text/folder/folder_settings.h"
#include "text/pipeline/pipeline.h"
#include "text/pipeline/tokenizer_hash.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;

// The tokenizer `byte`: each byte is its own id, so there are 256. It adds nothing and accepts any bytes.
class Byte final : public Tokenizer {
 public:
  Byte() : Tokenizer("byte", fmt::format("{:016x}", XXH3_64bits("byte", 4))) {}

  std::uint32_t vocab_size() const override { return 256; }
  std::optional<std::uint32_t> end_of_text() const override { return std::nullopt; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::vector<std::uint32_t> special_ids() const override { return {}; }
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Workspace>(); }
  void encode(std::string_view text, bool, Workspace&, std::vector<std::uint32_t>& out) const override {
    std::transform(text.begin(), text.end(), std::back_inserter(out),
                   [](char c) { return static_cast<unsigned char>(c); });
  }
  std::string decode(std::span<const std::uint32_t> ids, bool) const override {
    std::string out;
    for (const std::uint32_t id : ids) {
      if (id < 256) out += static_cast<char>(id);
    }
    return out;
  }
  TextCut safe_cut(std::string_view text, std::size_t limit) const override {
    const std::size_t end = std::min(limit, text.size());
    return {end, end};
  }
};

std::unique_ptr<Tokenizer> load_file(const fs::path& path, std::string name) {
  const MappedFile file(path);
  const std::string_view bytes = text_of(file);
  const FolderSettings settings = read_folder_settings(path.parent_path());
  if (settings.splits_special)
    fail(Exit::usage,
         "{}: split_special_tokens = true is not supported: Strata reads a special token in a text as that token, not "
         "as plain text; set it to false if that is right for your data",
         (path.parent_path() / "tokenizer_config.json").string());
  std::string hash = tokenizer_hash(path, bytes, settings);
  if (path.extension() == ".model") return make_sentence_piece(bytes, path, std::move(name), std::move(hash), settings);
  if (path.filename() == "vocab.json" || path.filename() == "vocab.txt")
    return Pipeline::parse(tokenizer_json_of(path, bytes, settings), path.string(), std::move(name), std::move(hash),
                           settings, true);
  return Pipeline::parse(bytes, path.string(), std::move(name), std::move(hash), settings);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& where) {
  if (where == "byte") return std::make_unique<Byte>();
  std::error_code ignored;
  const fs::path plain = (where / "").parent_path();  // without a trailing slash
  std::string name = plain.filename().string();
  if (fs::is_regular_file(where, ignored)) {
    const std::string folder = fs::absolute(where).parent_path().filename().string();
    return load_file(where, name.starts_with("tokenizer.") || name.starts_with("vocab.") ? folder : name);
  }
  if (!fs::is_directory(where, ignored)) {
    refuse_broken_link(plain);
    if (fs::exists(where, ignored))
      fail(Exit::usage, "--tokenizer {} is neither a folder nor a regular file: name the tokenizer's folder or file",
           where.string());
    fail(Exit::usage, "--tokenizer {}: there is neither a folder nor a file of that name (nor is it `byte`)",
         where.string());
  }
  if (name.empty() || name == "." || name == "..")
    name = fs::absolute(where).lexically_normal().parent_path().filename();
  for (const char* file : kTokenizerFiles) {
    if (fs::exists(where / file, ignored)) return load_file(where / file, name);
    refuse_broken_link(where / file);  // the next candidate may give different ids
  }
  if (fs::exists(where / "adapter_config.json", ignored))
    fail(Exit::usage,
         "{} contains an adapter (LoRA) but no tokenizer: give the folder of the model that it was made for",
         where.string());
  fail(Exit::usage,
       "{} contains no tokenizer.json, tokenizer.model, vocab.json or vocab.txt: name a tokenizer's folder",
       where.string());
}

}  // namespace strata::text

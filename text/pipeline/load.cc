#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/files/mapped_file.h"
#include "text/folder/folder_settings.h"
#include "text/folder/vocabulary_files.h"
#include "text/pipeline/byte.h"
#include "text/pipeline/pipeline.h"
#include "text/pipeline/sentence_piece.h"
#include "text/pipeline/tokenizer_hash.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxBytes = std::size_t{1} << 28;

std::string_view text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxBytes) {
    fail(Exit::corrupt, "{}: expected a file of at most 256 MiB, found {} bytes", file.path().string(), bytes.size());
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path, std::string name) {
  const MappedFile file(path);
  const std::string_view bytes = text_of(file);
  const FolderSettings settings = read_folder_settings(path.parent_path());
  if (settings.splits_special)
    fail(Exit::usage,
         "{}: split_special_tokens = true is not supported: a special token that a text contains becomes that token "
         "here, not plain text; set it to false if that is right for your data",
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
  if (where == "byte") return make_byte_tokenizer();
  std::error_code ignored;
  const fs::path plain = (where / "").parent_path();  // without a trailing slash
  std::string name = plain.filename().string();
  if (fs::is_regular_file(where, ignored)) {
    const std::string folder = fs::absolute(where).parent_path().filename().string();
    return load_file(where, name.starts_with("tokenizer.") || name.starts_with("vocab.") ? folder : name);
  }
  if (!fs::is_directory(where, ignored)) {
    refuse_broken_link(plain);
    fail(Exit::usage, "--tokenizer {}: there is neither a folder nor a file of that name (nor is it `byte`)",
         where.string());
  }
  if (name.empty() || name == "." || name == "..")
    name = fs::absolute(where).lexically_normal().parent_path().filename();
  for (const char* file : kTokenizerFiles) {
    if (fs::exists(where / file, ignored)) return load_file(where / file, name);
    refuse_broken_link(where / file);  // the next candidate may have other ids
  }
  if (fs::exists(where / "adapter_config.json", ignored))
    fail(Exit::usage,
         "{} contains an adapter (LoRA) and no tokenizer: give the folder of the model that it was made for",
         where.string());
  fail(Exit::usage, "{} contains neither a tokenizer.json nor a tokenizer.model, nor a vocab.json or vocab.txt",
       where.string());
}

}  // namespace strata::text

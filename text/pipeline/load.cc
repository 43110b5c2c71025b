#include <fmt/format.h>
#include <simdjson.h>
#include <xxhash.h>

#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json_fault.h"
#include "text/pipeline/byte.h"
#include "text/pipeline/pipeline.h"
#include "text/pipeline/sentence_piece.h"
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

// A token in a configuration: its text, or an object with "content".
std::optional<std::string> token_text(simdjson::ondemand::value value) {
  std::string_view text;
  simdjson::ondemand::object object;
  if (value.get_object().get(object) == simdjson::SUCCESS) {
    if (object["content"].get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
  } else if (value.get_string().get(text) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return std::string(text);
}

// What tokenizer_config.json and special_tokens_map.json beside the tokenizer say.
FolderOptions folder_options(const fs::path& folder) {
  FolderOptions out;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) continue;
    const MappedFile file(path);
    // On demand: "model_max_length" is often larger than any integer, and need not be read.
    simdjson::ondemand::parser parser;
    const simdjson::padded_string json(text_of(file));
    simdjson::ondemand::document document;
    simdjson::ondemand::object root;
    auto error = parser.iterate(json).get(document);
    if (!error) error = document.get_object().get(root);
    if (error) fail(Exit::corrupt, "{}: expected a JSON object, found {}", path.string(), found_in_json(text_of(file)));
    for (auto found : root) {
      simdjson::ondemand::field field;
      std::string_view key;
      bool flag = false;
      error = std::move(found).get(field);
      if (!error) error = field.unescaped_key().get(key);
      if (error) fail(Exit::corrupt, "{}: expected JSON, found {}", path.string(), found_in_json(text_of(file)));
      if (key == "eos_token" && !out.eos) out.eos = token_text(field.value());
      if (std::string_view side; key == "truncation_side" && field.value().get_string().get(side) == simdjson::SUCCESS)
        out.cuts_front = side == "left";
      if (key == "add_bos_token" && field.value().get_bool().get(flag) == simdjson::SUCCESS) out.add_bos = flag;
      if (key == "add_eos_token" && field.value().get_bool().get(flag) == simdjson::SUCCESS) out.add_eos = flag;
    }
  }
  return out;
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path, std::string name) {
  const MappedFile file(path);
  const std::string_view bytes = text_of(file);
  std::string hash = fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  const FolderOptions options = folder_options(path.parent_path());
  if (path.extension() == ".model") return make_sentence_piece(bytes, path, std::move(name), std::move(hash), options);
  return Pipeline::parse(bytes, path.string(), std::move(name), std::move(hash), options.eos, options.cuts_front);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& where) {
  if (where == "byte") return make_byte_tokenizer();
  std::error_code ignored;
  const fs::path plain = (where / "").parent_path();  // without a slash at the end
  std::string name = plain.filename().string();
  if (fs::is_regular_file(where, ignored)) {
    const std::string folder = fs::absolute(where).parent_path().filename().string();
    return load_file(where, name.starts_with("tokenizer.") ? folder : name);
  }
  if (!fs::is_directory(where, ignored)) {
    fail(Exit::usage, "--tokenizer {}: there is neither a folder nor a file of that name (nor is it `byte`)",
         where.string());
  }
  if (name.empty() || name == "." || name == "..")
    name = fs::absolute(where).lexically_normal().parent_path().filename();
  for (const char* file : kTokenizerFiles) {
    if (fs::exists(where / file, ignored)) return load_file(where / file, name);
  }
  if (fs::exists(where / "vocab.json", ignored) || fs::exists(where / "vocab.txt", ignored)) {
    fail(Exit::usage,
         "{} holds a vocabulary without a tokenizer.json: save it again with a fast tokenizer of transformers",
         where.string());
  }
  fail(Exit::usage, "{} holds neither a tokenizer.json nor a tokenizer.model", where.string());
}

}  // namespace strata::text

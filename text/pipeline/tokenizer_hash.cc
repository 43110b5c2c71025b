#include "text/pipeline/tokenizer_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "text/folder/class_components.h"
#include "text/json/json.h"
#include "text/pipeline/added_tokens.h"

namespace strata::text {
namespace {

std::string hash_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

// Whether a token is special affects masks and decoding, but not the ids of a text.
bool same_ids(const AddedToken& a, const AddedToken& b) {
  return a.id == b.id && a.content == b.content && a.normalized == b.normalized && a.left_strip == b.left_strip &&
         a.right_strip == b.right_strip && a.single_word == b.single_word;
}

std::string listed(const std::vector<AddedToken>& tokens) {
  std::string out;
  for (const AddedToken& token : tokens)
    out += fmt::format("\nadded {}:{} {} {}{}{}{}", token.content.size(), token.content, token.id,
                       int{token.normalized}, int{token.left_strip}, int{token.right_strip}, int{token.single_word});
  return out;
}

// Needs no look-up in the vocabulary, which is in the same file and so cannot distinguish two folders.
std::vector<AddedToken> with_folder(std::vector<AddedToken> own, const FolderSettings& settings) {
  std::vector<std::string> ignored;
  return with_added_tokens(
      std::move(own), settings, [](std::string_view) { return std::nullopt; }, 0, ignored);
}

// The settings in the folder that override a tokenizer.json.
std::string changes(const Json& json, const FolderSettings& settings) {
  std::string out;
  std::vector<std::string> ignored;
  if (const auto own = json.find("normalizer"))
    if (const auto made = normalizer_of_class(settings, *own, ignored)) out += "\nnormalizer " + *made;
  if (const auto own = json.find("pre_tokenizer"))
    if (const auto made = pre_tokenizer_of_class(settings, *own, ignored)) out += "\npre_tokenizer " + *made;
  std::vector<AddedToken> own;
  if (const auto found = json.find("added_tokens")) own = read_added_tokens(*found);
  const std::vector<AddedToken> all = with_folder(own, settings);
  if (!std::ranges::equal(own, all, same_ids)) out += listed(all);
  return out;
}

// The class provides the template around a text if the file has none.
std::string class_template(const FolderSettings& settings) {
  std::string out = "\nclass " + settings.tokenizer_class;
  for (const char* key : {"bos_token", "eos_token", "cls_token", "sep_token"})
    out += fmt::format(" {}={}", key, settings.token_text(key));
  return out + fmt::format(" {}{}", settings.add_bos.value_or(false), settings.add_eos.value_or(false));
}

// Whether `text` is a piece of the SentencePiece model that is matched only as a whole: a control piece, the unknown
// piece, or a user-defined one. A piece is a message with its text (1), its score (2) and, except for normal pieces,
// its kind (3).
bool is_marked_piece(std::string_view model, const std::string& text) {
  constexpr std::size_t kScore = 5;
  if (text.size() >= 128) return false;
  const std::string field = std::string{'\x0a', static_cast<char>(text.size())} + text + '\x15';
  for (std::size_t at = model.find(field); at != std::string_view::npos; at = model.find(field, at + 1))
    if (model.substr(std::min(at + field.size() - 1 + kScore, model.size())).starts_with('\x18')) return true;
  return false;
}

// Classes change the rules or the numbers of a SentencePiece model, and folders add tokens to it.
std::string changes_of_pieces(std::string_view model, const FolderSettings& settings) {
  std::vector<AddedToken> out = settings.listed;
  for (const auto& [key, token] : settings.named) out.push_back(token);
  out.insert(out.end(), settings.extra.begin(), settings.extra.end());
  std::erase_if(out, [&](const AddedToken& token) {
    return !token.left_strip && !token.right_strip && !token.single_word && is_marked_piece(model, token.content);
  });
  std::string text = listed(out);
  // `legacy` decides whether text after an added token or a control piece is tokenized like the beginning of a text.
  const bool by_itself = !settings.is_llama();
  if (!out.empty() || settings.legacy.value_or(by_itself) != by_itself)
    text += fmt::format("\nlegacy {}", settings.legacy.value_or(by_itself));
  if (settings.is_renumbered() || settings.is_llama()) text += "\nclass " + settings.tokenizer_class;
  return text;
}

}  // namespace

std::string tokenizer_hash(const std::filesystem::path& file, std::string_view bytes, const FolderSettings& settings) {
  std::string more;
  if (file.extension() == ".model") {
    more = changes_of_pieces(bytes, settings);
  } else if (file.filename() == "vocab.json" || file.filename() == "vocab.txt") {
    const std::string json = tokenizer_json_of(file, bytes, settings);
    return hash_of(json + class_template(settings) + listed(with_folder({}, settings)));
  } else {
    const std::string name = file.string();
    const JsonDocument document(bytes, name, "a tokenizer.json");
    more = changes(document.root(), settings);
  }
  return more.empty() ? hash_of(bytes) : hash_of(hash_of(bytes) + more);
}

std::string tokenizer_hash(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string_view bytes{reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
  try {
    return tokenizer_hash(file, bytes, read_folder_settings(file.parent_path()));
  } catch (const Error&) {
    return hash_of(bytes);  // no tokens were made with this tokenizer
  }
}

}  // namespace strata::text

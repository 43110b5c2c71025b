#include <fmt/format.h>

#include <map>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json/json_writer.h"
#include "text/folder/class_components.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;

// Unlike json_string(), leaves the control character 0x7f as it is: the tokenizer's hash covers this text.
std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

template <typename Use>
void each_line(std::string_view text, Use&& use) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, number);
  }
}

std::string merges_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored))
    fail(Exit::usage, "{} is missing: it belongs to the vocab.json next to it, so copy it from the same source",
         file.string());
  const MappedFile mapped(file);
  const std::string_view text{reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
  if (!is_valid_utf8(text)) fail(Exit::corrupt, "{}: expected text in UTF-8", file.string());
  std::string out;
  each_line(text, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version") || line.empty()) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail(Exit::corrupt, "{}, line {}: expected two pieces with a space between them, found {}", file.string(), number,
           shortened(line));
    out += fmt::format("{}[{},{}]", out.empty() ? "" : ",", json_quoted(line.substr(0, space)),
                       json_quoted(line.substr(space + 1)));
  });
  return out;
}

// The lines in order. If two lines are equal, the last one counts.
std::string ids_of_words(const fs::path& file, std::string_view text) {
  if (!is_valid_utf8(text)) fail(Exit::corrupt, "{}: expected text in UTF-8", file.string());
  std::map<std::string_view, std::size_t> ids;
  each_line(text, [&](std::string_view line, std::size_t number) {
    while (!line.empty() && is_whitespace(last_character(line).code)) line.remove_suffix(last_character(line).bytes);
    ids.insert_or_assign(line, number - 1);
  });
  std::string out;
  for (const auto& [word, id] : ids) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", json_quoted(word), id);
  return out;
}

[[noreturn]] void refuse(const fs::path& file, const FolderSettings& settings) {
  const std::string& name = settings.tokenizer_class;
  for (const std::string_view python : {"PhobertTokenizer", "BertweetTokenizer", "BertJapaneseTokenizer",
                                        "CTRLTokenizer", "XLMTokenizer", "FlaubertTokenizer", "ProphetNetTokenizer"})
    if (name == python)
      fail(Exit::usage,
           "{} is the vocabulary of {}, which exists only in Python and cannot become a tokenizer.json: tokenize "
           "with transformers, and give the tokens as a file (docs/formats.md)",
           file.string(), name);
  if (name.empty() && settings.model_type.empty())
    fail(Exit::usage,
         "{} is a vocabulary, but no tokenizer_config.json or config.json next to it names the tokenizer class: put "
         "the model's config.json there",
         file.string());
  fail(Exit::usage, "{} is the vocabulary of {}, which is read only from a tokenizer.json: {} writes one",
       file.string(), name.empty() ? fmt::format("a {} model", settings.model_type) : name,
       save_command(file.parent_path()));
}

}  // namespace

std::string tokenizer_json_of(const fs::path& file, std::string_view vocabulary, const FolderSettings& settings) {
  const bool words = file.extension() == ".txt";
  if (words ? !settings.is_bert() : !settings.is_byte_level()) refuse(file, settings);
  const ClassComponents made = components_of_class(settings);
  JsonObject out;
  out.add("normalizer", JsonText{*made.normalizer}).add("pre_tokenizer", JsonText{*made.pre_tokenizer});
  if (words) {
    const std::string unknown = settings.token_text("unk_token"), ids = ids_of_words(file, vocabulary);
    if (fmt::format(",{}", ids).find(fmt::format(",{}:", json_quoted(unknown))) == std::string::npos)
      fail(Exit::corrupt,
           "{} has no \"{}\", which is the unk_token of the files next to it: set unk_token in tokenizer_config.json "
           "and special_tokens_map.json to the one that it has (usually [UNK])",
           file.string(), unknown);
    out.add("decoder", JsonObject().add("type", "WordPiece").add("prefix", "##").add("cleanup", true))
        .add("model", JsonObject()
                          .add("type", "WordPiece")
                          .add("unk_token", JsonText{json_quoted(unknown)})
                          .add("continuing_subword_prefix", "##")
                          .add("max_input_chars_per_word", 100)
                          .add("vocab", JsonText{"{" + ids + "}"}));
    return out.text();
  }
  out.add("decoder", JsonObject().add("type", "ByteLevel"))
      .add("model", JsonObject()
                        .add("type", "BPE")
                        .add("fuse_unk", false)
                        .add("vocab", JsonText{vocabulary})
                        .add("merges", JsonText{"[" + merges_of(file.parent_path() / "merges.txt") + "]"}));
  return out.text();
}

}  // namespace strata::text

#include "text/folder/class_components.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json/json_writer.h"
#include "text/split/pre_tokenizers.h"
#include "text/split/word_boundary.h"

namespace strata::text {
namespace {

// Qwen2Tokenizer's pattern.
constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string bert_normalizer(bool chinese, bool strips_accents, bool lowercase) {
  return JsonObject()
      .add("type", "BertNormalizer")
      .add("clean_text", true)
      .add("handle_chinese_chars", chinese)
      .add("strip_accents", strips_accents)
      .add("lowercase", lowercase)
      .text();
}

// A component of this type, without options.
JsonObject typed(std::string_view type) {
  return JsonObject().add("type", type);
}

std::string in_sequence(const JsonObject& first, const JsonObject& second) {
  return typed("Sequence").add("pretokenizers", JsonArray().add(first).add(second)).text();
}

// The components of a sequence, or the single component.
std::vector<Json> parts_of(const std::optional<Json>& component) {
  std::vector<Json> out;
  if (!component) return out;
  if (component->type() != "Sequence") return {*component};
  for (const char* key : {"normalizers", "pretokenizers"})
    if (const auto list = component->find(key)) list->each([&](const Json& one) { out.push_back(one); });
  return out;
}

bool has_byte_level(const std::optional<Json>& pre_tokenizer) {
  const std::vector<Json> parts = parts_of(pre_tokenizer);
  return std::any_of(parts.begin(), parts.end(), [](const Json& one) { return one.type() == "ByteLevel"; });
}

// What the components do to a text, in a form that does not depend on how their JSON is written.
std::string meaning_of(const std::optional<Json>& component) {
  std::string out;
  for (const Json& one : parts_of(component)) {
    const std::string_view type = one.type();
    if (type == "ByteLevel") {
      out += fmt::format("ByteLevel {} {};", one.flag_or("add_prefix_space", true), one.flag_or("use_regex", true));
    } else if (type == "Metaspace") {
      const MetaspaceOptions options = metaspace_options(one);
      out += fmt::format("Metaspace {} {} {};", options.replacement, static_cast<int>(options.prepend), options.split);
    } else if (type == "BertNormalizer") {
      out += "BertNormalizer;";  // the class sets its flags
    } else {
      out += one.minified() + ";";
    }
  }
  return out;
}

}  // namespace

ClassComponents components_of_class(const FolderSettings& settings) {
  const std::string_view name = settings.tokenizer_class;
  const bool qwen = name == "Qwen2Tokenizer";
  if (settings.is_bert()) {
    const bool lower = settings.lowercase.value_or(true);
    return {bert_normalizer(settings.splits_chinese.value_or(true), settings.strip_accents.value_or(lower), lower),
            typed("BertPreTokenizer").text()};
  }
  if (settings.is_byte_level()) {
    const JsonObject bytes =
        typed("ByteLevel").add("add_prefix_space", settings.prefix_space.value_or(false)).add("use_regex", !qwen);
    const JsonObject words = typed("Split")
                                 .add("pattern", JsonObject().add("Regex", kQwenPattern))
                                 .add("behavior", "Isolated")
                                 .add("invert", false);
    return {qwen || name == "GPTNeoXTokenizer" ? typed("NFC").text() : "null",
            qwen ? in_sequence(words, bytes) : bytes.text()};
  }
  const auto metaspace = [&](std::string_view scheme, bool split) {
    return typed("Metaspace")
        .add("replacement", kSpaceMark)
        .add("prepend_scheme", settings.prefix_space.value_or(true) ? scheme : "never")
        .add("split", split);
  };
  if (settings.is_renumbered()) return {std::nullopt, in_sequence(typed("WhitespaceSplit"), metaspace("always", true))};
  if (!settings.is_llama()) return {};
  const bool each = settings.legacy.value_or(false) && name != "CodeLlamaTokenizer";
  return {"null", metaspace(each ? "always" : "first", false).text()};
}

std::optional<std::string> note_on_components(const FolderSettings& settings, const std::optional<Json>& normalizer,
                                              const std::optional<Json>& pre_tokenizer) {
  // transformers leaves a byte-level tokenizer.json unchanged, even if its class is Llama's.
  if (settings.is_llama() && has_byte_level(pre_tokenizer)) return std::nullopt;
  const ClassComponents made = components_of_class(settings);
  const auto differs = [&](const std::optional<std::string>& json, const std::string& own) {
    if (!json) return false;
    static const std::string kPlace = "class";
    const JsonDocument document(*json, kPlace, "a component");
    return meaning_of(document.root().is_null() ? std::nullopt : std::optional(document.root())) != own;
  };
  const std::string own = meaning_of(normalizer), splits = meaning_of(pre_tokenizer);
  // Replacing spaces without splitting is the same as a Metaspace that adds no space in front.
  const bool replaced =
      settings.is_llama() && settings.prefix_space == false && splits.empty() &&
      own == fmt::format(R"({{"type":"Replace","pattern":{{"String":" "}},"content":"{}"}};)", kSpaceMark);
  const bool of_normalizer = !replaced && differs(made.normalizer, own);
  const bool of_splits = !replaced && differs(made.pre_tokenizer, splits);
  if (!of_normalizer && !of_splits) return std::nullopt;
  return fmt::format(
      "the {} of tokenizer.json {} used, as in transformers 4; transformers 5 rebuilds {} for {}, which can give "
      "different ids",
      of_normalizer && of_splits ? "normalizer and the pre_tokenizer"
      : of_normalizer            ? "normalizer"
                                 : "pre_tokenizer",
      of_normalizer && of_splits ? "are" : "is", of_normalizer && of_splits ? "both" : "it", settings.tokenizer_class);
}

std::optional<std::string> normalizer_of_class(const FolderSettings& settings, const Json& own,
                                               std::vector<std::string>& notes) {
  if (settings.is_llama() && settings.prefix_space == false) {
    JsonArray kept;
    const std::vector<Json> parts = parts_of(own);
    for (const Json& one : parts)
      if (one.type() != "Prepend") kept.add(JsonText{one.minified()});
    if (std::none_of(parts.begin(), parts.end(), [](const Json& one) { return one.type() == "Prepend"; }))
      return std::nullopt;
    notes.emplace_back(
        "add_prefix_space = false in tokenizer_config.json is used, as in transformers, although "
        "tokenizer.json says true");
    return typed("Sequence").add("normalizers", kept).text();
  }
  if (!settings.is_bert() || own.type() != "BertNormalizer") return std::nullopt;
  const bool lower = settings.lowercase.value_or(true), chinese = settings.splits_chinese.value_or(true);
  const bool strips = settings.strip_accents.value_or(lower);
  const bool own_lower = own.flag_or("lowercase", true), own_chinese = own.flag_or("handle_chinese_chars", true);
  const bool own_strips = own.flag_or("strip_accents", own_lower);
  const auto differs = [&](bool wanted, bool its, const char* key, bool given) {
    if (wanted == its) return;
    notes.push_back(fmt::format("{} = {}{} is used, as in transformers, although tokenizer.json says {}", key, wanted,
                                given ? " in tokenizer_config.json" : " (not set in tokenizer_config.json)", its));
  };
  differs(lower, own_lower, "do_lower_case", settings.lowercase.has_value());
  if (settings.strip_accents || lower == own_lower)
    differs(strips, own_strips, "strip_accents", settings.strip_accents.has_value());
  differs(chinese, own_chinese, "tokenize_chinese_chars", settings.splits_chinese.has_value());
  if (lower == own_lower && strips == own_strips && chinese == own_chinese) return std::nullopt;
  return bert_normalizer(chinese, strips, lower);
}

std::optional<std::string> pre_tokenizer_of_class(const FolderSettings& settings, const Json& own,
                                                  std::vector<std::string>& notes) {
  std::string text = own.minified();
  const auto replace = [&](std::string_view from, std::string_view to) {
    bool done = false;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
      done = true;
    }
    return done;
  };
  const bool pieces = settings.is_renumbered();
  bool changed = false;
  const bool wanted = settings.prefix_space.value_or(pieces);
  if (settings.is_byte_level() && own.type() == "ByteLevel") {
    changed = wanted ? replace(R"("add_prefix_space":false)", R"("add_prefix_space":true)")
                     : replace(R"("add_prefix_space":true)", R"("add_prefix_space":false)");
  } else if ((pieces || settings.is_llama()) && settings.prefix_space == false && !has_byte_level(own)) {
    for (const char* scheme : {R"("prepend_scheme":"always")", R"("prepend_scheme":"first")"})
      changed = replace(scheme, R"("prepend_scheme":"never")") || changed;
    changed = replace(R"("add_prefix_space":true)", R"("add_prefix_space":false)") || changed;
  }
  if (!changed) return std::nullopt;
  notes.push_back(fmt::format(
      "add_prefix_space = {}{} is used, as in transformers, although tokenizer.json says {}", wanted,
      settings.prefix_space ? " in tokenizer_config.json" : " (not set in tokenizer_config.json)", !wanted));
  return text;
}

TextTemplate template_of_class(const FolderSettings& settings,
                               const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of) {
  using Kind = TextTemplate::Kind;
  const auto id = [&](std::string_view key) -> std::optional<std::uint32_t> {
    const std::string text = settings.token_text(key);
    return text.empty() ? std::nullopt : id_of(text);
  };
  TextTemplate out;
  const bool pieces = settings.is_renumbered();
  const bool bert = settings.is_bert();
  if (settings.makes_template()) {
    const auto cls = id(pieces ? "bos_token" : "cls_token"), sep = id(pieces ? "eos_token" : "sep_token");
    if (!cls || !sep) return out;
    out.single = {{Kind::token, *cls}, {Kind::first}, {Kind::token, *sep}};
    out.pair = out.single;
    if (!bert) out.pair.push_back({Kind::token, *sep});
    const std::uint32_t type = bert ? 1 : 0;
    out.pair.push_back({Kind::second, 0, type});
    out.pair.push_back({Kind::token, *sep, type});
    return out;
  }
  out.single.clear();
  std::vector<std::uint32_t> front, back;  // at most one token each
  if (const auto bos = id("bos_token"); bos && settings.add_bos.value_or(false)) front.push_back(*bos);
  if (const auto eos = id("eos_token"); eos && settings.add_eos.value_or(false)) back.push_back(*eos);
  const auto put = [&](std::vector<TextTemplate::Piece>& pieces_of, Kind kind, std::uint32_t type) {
    for (const std::uint32_t token : front) pieces_of.push_back({Kind::token, token, type});
    pieces_of.push_back({kind, 0, type});
    for (const std::uint32_t token : back) pieces_of.push_back({Kind::token, token, type});
  };
  put(out.single, Kind::first, 0);
  out.pair = out.single;
  put(out.pair, Kind::second, 1);
  return out;
}

}  // namespace strata::text

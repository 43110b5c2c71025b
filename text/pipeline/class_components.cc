#include "text/pipeline/class_components.h"

#include <fmt/format.h>

namespace strata::text {

std::optional<std::string> normalizer_of_class(const FolderSettings& settings, const Json& own,
                                               std::vector<std::string>& remarks) {
  if (!settings.is_bert() || own.type() != "BertNormalizer") return std::nullopt;
  const bool lower = settings.lowercase.value_or(true), chinese = settings.splits_chinese.value_or(true);
  const bool strips = settings.strip_accents.value_or(lower);
  const bool own_lower = own.flag_or("lowercase", true), own_chinese = own.flag_or("handle_chinese_chars", true);
  const bool own_strips = own.flag_or("strip_accents", own_lower);
  const auto differs = [&](bool wanted, bool its, const char* key, bool given) {
    if (wanted == its) return;
    remarks.push_back(fmt::format("{} = {}{} is used, as in transformers, although tokenizer.json says {}", key, wanted,
                                  given ? " of tokenizer_config.json" : " (tokenizer_config.json does not say it)",
                                  its));
  };
  differs(lower, own_lower, "do_lower_case", settings.lowercase.has_value());
  if (settings.strip_accents || lower == own_lower)
    differs(strips, own_strips, "strip_accents", settings.strip_accents.has_value());
  differs(chinese, own_chinese, "tokenize_chinese_chars", settings.splits_chinese.has_value());
  if (lower == own_lower && strips == own_strips && chinese == own_chinese) return std::nullopt;
  return fmt::format(
      R"({{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":{},"strip_accents":{},"lowercase":{}}})",
      chinese, strips, lower);
}

std::optional<std::string> pre_tokenizer_of_class(const FolderSettings& settings, const Json& own,
                                                  std::vector<std::string>& remarks) {
  std::string text = own.minified();
  const auto replace = [&](std::string_view from, std::string_view to) {
    bool done = false;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
      done = true;
    }
    return done;
  };
  const bool pieces =
      settings.tokenizer_class == "XLMRobertaTokenizer" || settings.tokenizer_class == "CamembertTokenizer";
  bool changed = false;
  const bool wanted = settings.prefix_space.value_or(pieces);
  if (settings.is_byte_level() && text.find(R"("type":"ByteLevel")") != std::string::npos) {
    changed = wanted ? replace(R"("add_prefix_space":false)", R"("add_prefix_space":true)")
                     : replace(R"("add_prefix_space":true)", R"("add_prefix_space":false)");
  } else if ((pieces || settings.is_llama()) && settings.prefix_space == false) {
    for (const char* scheme : {R"("prepend_scheme":"always")", R"("prepend_scheme":"first")"})
      changed = replace(scheme, R"("prepend_scheme":"never")") || changed;
    changed = replace(R"("add_prefix_space":true)", R"("add_prefix_space":false)") || changed;
  }
  if (!changed) return std::nullopt;
  remarks.push_back(fmt::format(
      "add_prefix_space = {}{} is used, as in transformers, although tokenizer.json says {}", wanted,
      settings.prefix_space ? " of tokenizer_config.json" : " (tokenizer_config.json does not say it)", !wanted));
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
  const bool pieces =
      settings.tokenizer_class == "XLMRobertaTokenizer" || settings.tokenizer_class == "CamembertTokenizer";
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
  std::vector<std::uint32_t> front, back;  // at most one each
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

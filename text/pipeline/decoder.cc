#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "base/number.h"
#include "text/pipeline/pipeline.h"
#include "text/split/pre_tokenizers.h"
#include "text/unicode/byte_level.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::string());
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  if (what.empty()) return;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
}

void fuse(Tokens& tokens) {
  tokens = {joined(tokens)};
}

void decode_bytes(Tokens& tokens) {
  std::string bytes, text;
  // An added token may contain characters that encode no byte. Then it stands for its own text.
  for (const std::string& token : tokens) bytes += bytes_of(token).value_or(token);
  append_repaired(bytes, text);
  tokens = {std::move(text)};
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto byte = parse_number<std::uint8_t>(token.substr(3, 2), 16);
  return byte ? std::optional(static_cast<char>(*byte)) : std::nullopt;
}

void decode_fallback(Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (is_valid_utf8(bytes)) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\ufffd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

void clean_up(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules{{{" .", "."},
                                                                                         {" ?", "?"},
                                                                                         {" !", "!"},
                                                                                         {" ,", ","},
                                                                                         {" ' ", "'"},
                                                                                         {" n't", "n't"},
                                                                                         {" 'm", "'m"},
                                                                                         {" do not", " don't"},
                                                                                         {" 's", "'s"},
                                                                                         {" 've", "'ve"},
                                                                                         {" 're", "'re"}}};
  for (const auto& [what, with] : kRules) replace_all(text, what, with);
}

void decode_metaspace(Tokens& tokens, const MetaspaceOptions& options) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool drop = i == 0 && options.prepend != MetaspaceOptions::Prepend::never;
    replace_all(tokens[i], options.replacement, drop ? "" : " ");
  }
}

void strip(Tokens& tokens, std::string_view content, std::size_t start, std::size_t stop) {
  for (std::string& token : tokens) {
    for (std::size_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
    for (std::size_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
  }
}

void add(const Json& json, std::vector<Decoder>& out) {
  const std::string_view type = json.type();
  if (type == "Sequence") {
    json.at("decoders").each([&](const Json& one) { add(one, out); });
  } else if (type == "ByteLevel") {
    out.emplace_back(&decode_bytes);
  } else if (type == "ByteFallback") {
    out.emplace_back(&decode_fallback);
  } else if (type == "Fuse") {
    out.emplace_back(&fuse);
  } else if (type == "Replace") {
    std::string what(json.at("pattern").at("String").text()), with(json.at("content").text());
    out.emplace_back([what, with](Tokens& tokens) {
      for (std::string& token : tokens) replace_all(token, what, with);
    });
  } else if (type == "Metaspace") {
    out.emplace_back([options = metaspace_options(json)](Tokens& tokens) { decode_metaspace(tokens, options); });
  } else if (type == "Strip") {
    const auto count = [&](const char* key) { return static_cast<std::size_t>(json.at(key).integer(0, 1 << 20)); };
    std::string content(json.at("content").text());
    if (content.empty()) json.wrong("a \"content\" of one character");
    out.emplace_back([content, start = count("start"), stop = count("stop")](Tokens& tokens) {
      strip(tokens, content, start, stop);
    });
  } else if (type == "WordPiece") {
    out.emplace_back([prefix = json.text_or("prefix", "##"), clean = json.flag_or("cleanup", true)](Tokens& tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) {
          if (tokens[i].starts_with(prefix)) {
            tokens[i].erase(0, prefix.size());
          } else {
            tokens[i].insert(0, " ");
          }
        }
        if (clean) clean_up(tokens[i]);
      }
    });
  } else if (type == "BPEDecoder") {
    out.emplace_back([suffix = json.text_or("suffix", "</w>")](Tokens& tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
      }
    });
  } else {
    json.unsupported(fmt::format("the decoder {}", shortened(type)));
  }
}

}  // namespace

std::vector<Decoder> make_decoders(const Json& json) {
  std::vector<Decoder> out;
  add(json, out);
  return out;
}

}  // namespace strata::text

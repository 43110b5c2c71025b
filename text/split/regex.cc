#include "text/split/regex.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/error.h"
#include "text/unicode/unicode_versions.h"

namespace strata::text {
namespace {

// Used inside a bracket. PCRE2's own \s also includes U+180E, and its \w lacks marks and connectors.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Letters of escapes that mean something else in PCRE2, or nothing.
constexpr std::string_view kUnsupported = "HRXKGgkbBCMcyYON";

// Ranges of a general category ("L", "Nd") that PCRE2's tables lack, as members of a bracket.
std::string later_members(std::string_view category) {
  std::string out;
  for (const LaterRange& range : kLaterCharacters) {
    if (!std::string_view(range.category).starts_with(category)) continue;
    out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(range.first),
                       static_cast<std::uint32_t>(range.last));
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {reinterpret_cast<const char*>(text.data())};
}

std::string word_members() {
  std::string out(kWord);
  for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) out += later_members(category);
  return out;
}

}  // namespace

std::string from_oniguruma(std::string_view pattern, std::string& unsupported) {
  std::string out;
  bool inside = false;  // inside a bracket
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      const auto set = [&](std::string_view members) {
        out.append(inside ? "" : "[").append(members).append(inside ? "" : "]");
      };
      switch (escaped) {
        case 's':
          set(kSpace);
          break;
        case 'S':
          set(kNoSpace);
          break;
        case 'w':
          set(word_members());
          break;
        case 'd':
          set(R"(\p{Nd})");
          break;
        case 'D':
          set(R"(\P{Nd})");
          break;
        case 'h':
          set("0-9a-fA-F");
          break;
        case 'W':
          if (inside) unsupported = R"(\W inside a bracket)";
          out.append("[^").append(word_members()).append("]");
          break;
        case 'u':
          out.append("\\x{").append(pattern.substr(i + 1, 4)).append("}");
          i = std::min(i + 4, pattern.size() - 1);
          break;
        case 'p':
        case 'P':
        case 'x': {
          // Copy it as a whole, so that its closing brace is not mistaken for that of a repetition.
          const std::size_t end = pattern.substr(i + 1).starts_with('{') ? pattern.find('}', i) : i + 1;
          const std::string_view whole = pattern.substr(i - 1, std::min(end, pattern.size()) - i + 2);
          i = std::min(end, pattern.size() - 1);
          const std::string later =
              escaped == 'x' || whole.size() < 5 ? "" : later_members(whole.substr(3, whole.size() - 4));
          if (later.empty()) {
            out += whole;
          } else if (escaped == 'p') {
            set(std::string(whole) + later);
          } else {
            if (inside) unsupported = std::string(whole) + " in a bracket";
            out.append("[^\\p").append(whole.substr(2)).append(later).append("]");
          }
          break;
        }
        default:
          if (kUnsupported.find(escaped) != std::string_view::npos) unsupported = std::string("\\") + escaped;
          out.append({'\\', escaped});
      }
      continue;
    }
    if (inside) {
      // Oniguruma allows nested and intersected brackets. PCRE2 reads their syntax as characters.
      if (c == '[') unsupported = "a bracket inside a bracket";
      if (c == '&' && pattern.substr(i).starts_with("&&")) unsupported = "&& in a bracket";
      if (c == ']') inside = false;
    } else if (c == '[') {
      inside = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') unsupported = "] as the first of a bracket";
      continue;
    } else if (c == '}' && i + 1 < pattern.size() && pattern[i + 1] == '+') {
      unsupported = "+ after {}";  // greedy in Oniguruma, possessive in PCRE2
    } else if (c == '(' && pattern.substr(i).starts_with("(?") && i + 2 < pattern.size()) {
      // (?m) is another option in Oniguruma, and a lookbehind would see across a cut.
      std::size_t end = i + 2;
      while (end < pattern.size() && (pattern[end] == 'i' || pattern[end] == '-')) ++end;
      const bool known = end < pattern.size() && std::string_view(":=!>)").find(pattern[end]) != std::string_view::npos;
      const bool behind = pattern.substr(i).starts_with("(?<=") || pattern.substr(i).starts_with("(?<!");
      if (!known && !behind) unsupported = std::string(pattern.substr(i, 4));
    }
    out += c;
  }
  return out;
}

std::string escaped_for_regex(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

RegexMatcher::RegexMatcher()
    : match_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{8} << 20, nullptr)) {
  if (!match_ || !context_ || !stack_) throw std::bad_alloc();
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

void Regex::compile(std::string_view pattern, std::string& error) {
  int code = 0;
  std::size_t offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset,
                            nullptr));
  if (!code_) {
    error = message_of(code);
    return;
  }
  const int compiled = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  // If PCRE2 has no JIT for this machine, pcre2_match below interprets the pattern, with the same matches.
  if (compiled != 0 && compiled != PCRE2_ERROR_JIT_BADOPTION) error = message_of(compiled);
}

Regex::Regex(std::string_view pattern, const Json& place) {
  std::string why;
  const std::string rewritten = from_oniguruma(pattern, why);
  if (why.empty()) compile(rewritten, why);
  if (!why.empty()) place.unsupported(fmt::format("the pattern {} ({})", shortened(pattern), shortened(why)));
}

Regex::Regex(std::string_view pattern) {
  std::string why;
  compile(pattern, why);
  STRATA_CHECK_EQ(why, "");
}

bool Regex::find(std::string_view text, std::size_t from, RegexMatcher& matcher, Match& match) const {
  // pcre2_match runs the JIT-compiled code if it exists.
  const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, matcher.match_.get(), matcher.context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) fail(Exit::failed, "a pattern of the tokenizer fails on a text: {}", message_of(found));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(matcher.match_.get());
  match = {range[0], range[1]};
  return true;
}

}  // namespace strata::text

#include <utf8proc.h>

#include <cstdlib>
#include <new>

#include "text/unicode/normalizer.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// A Unicode normalization form (Unicode Standard Annex 15), computed by utf8proc.
class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(utf8proc_option_t options) : options_(options) {}

  void apply(std::string_view text, RegexMatcher&, std::string& out) const override {
    // Copies sequences that no form changes. Normalizes others from the plain character before them on, because a mark
    // may combine with it.
    for (std::size_t at = 0; at < text.size();) {
      std::size_t plain = at, last = at;
      while (plain < text.size()) {
        const auto [code, bytes] = character_at(text, plain);
        if (!is_plain(code)) break;
        last = is_later(code) ? plain + bytes : plain;
        plain += bytes;
      }
      if (plain == text.size()) {
        out += text.substr(at);
        return;
      }
      out += text.substr(at, last - at);
      std::size_t end = plain;
      while (end < text.size()) {
        const auto [code, bytes] = character_at(text, end);
        if (is_plain(code)) break;
        end += bytes;
      }
      rewrite(text.substr(last, end - last), out);
      at = end;
    }
  }
  CutSafety cut_safety(char) const override { return CutSafety::keeps; }

 private:
  // Decompositions in utf8proc's Unicode 15 that the tokenizers library does not have.
  static bool is_later(char32_t code) {
    return code == 0x32ff || (code >= 0xa7f2 && code <= 0xa7f4) || code == 0xab69 ||
           (code >= 0x10781 && code <= 0x107ba) || code == 0x11938 || (code >= 0x1e030 && code <= 0x1e06d) ||
           code == 0x1f16c || (code >= 0x1fbf0 && code <= 0x1fbf9);
  }
  // Whether no form changes the character, and it never combines with a plain character before it.
  static bool is_plain(char32_t code) {
    if (code < 0x80 || is_later(code)) return true;
    if (code >= 0x4e00 && code < 0x9fff) return true;
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
    return property->combining_class == 0 && property->decomp_seqindex == kNoIndex &&
           property->comb_index == kNoIndex && !(code >= 0x1100 && code < 0x1200) && !(code >= 0xac00 && code < 0xd7a4);
  }
  void rewrite(std::string_view text, std::string& out) const {
    utf8proc_uint8_t* made = nullptr;
    const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                static_cast<utf8proc_ssize_t>(text.size()), &made, options_);
    if (n < 0) throw std::bad_alloc();  // the text is valid UTF-8, so there is no other reason for an error
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
    out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(n));
  }
  static constexpr utf8proc_uint16_t kNoIndex = 0xffff;

  utf8proc_option_t options_;
};

}  // namespace

std::unique_ptr<Normalizer> make_unicode_form(std::string_view name) {
  const int direction = name.ends_with('C') ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  const int compatible = name.starts_with("NFK") ? UTF8PROC_COMPAT : 0;
  return std::make_unique<UnicodeForm>(static_cast<utf8proc_option_t>(UTF8PROC_STABLE | direction | compatible));
}

}  // namespace strata::text

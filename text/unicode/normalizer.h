#pragma once
// text/unicode/ handles Unicode: normal forms and a tokenizer's normalizers (here), character classes (characters.h),
// UTF-8 (utf8.h), and GPT-2's alphabet of bytes (byte_level.h).

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json/json.h"
#include "text/split/pre_tokenizers.h"
#include "text/split/regex.h"

namespace strata::text {

// Rewrites a text before it is split. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Appends the normalized `text` (valid UTF-8) to `out`.
  virtual void apply(std::string_view text, RegexMatcher& matcher, std::string& out) const = 0;
  // Whether it drops the first character, after which the text begins later.
  virtual bool drops_beginning(std::string_view) const { return false; }
  // `keeps` if cutting a text before a single ' ' or '\n' between letters leaves the normalized text, including the
  // separator, unchanged.
  virtual CutSafety cut_safety(char separator) const = 0;
};

// Builds the normalizers of "normalizer" in a tokenizer.json; sequences are flattened.
std::vector<std::unique_ptr<Normalizer>> make_normalizers(const Json& json);

// "Precompiled": SentencePiece's table of replacements, in base64 in the file.
std::unique_ptr<Normalizer> make_precompiled(const Json& json);
// One of NFC, NFD, NFKC, NFKD.
std::unique_ptr<Normalizer> make_unicode_form(std::string_view name);

}  // namespace strata::text

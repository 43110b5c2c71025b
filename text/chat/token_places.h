#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/rendered.h"
#include "text/tokenizer.h"

namespace strata::text {

// Finds the tokens of a text that lie in its labels, for any tokenizer: by the text that each token stands for or, if
// the tokenizer changes the text, by tokenizing its beginnings. One per thread.
class TokenPlaces {
 public:
  // `workspace` is the thread's workspace for `tokenizer`; both outlive this.
  TokenPlaces(const Tokenizer& tokenizer, Tokenizer::Workspace& workspace);

  // For each of `ids`, the tokens of `text`: whether it covers a byte of `labels` (in order and disjoint), as
  // transformers' char_to_token says. False if that cannot be told.
  bool mark(std::string_view text, std::span<const std::uint32_t> ids, std::span<const jinja::Stretch> labels,
            std::vector<std::uint8_t>& counts);

 private:
  const std::string& surface(std::uint32_t id);
  std::string surface_of(std::span<const std::uint32_t> ids) const;
  // Finds the bytes of each token; false if a token does not occur in the text.
  bool align(std::string_view text, std::span<const std::uint32_t> ids);
  // How many tokens the first `bytes` of the text have.
  std::optional<std::size_t> tokens_before(std::string_view text, std::size_t bytes,
                                           std::span<const std::uint32_t> ids);

  const Tokenizer& tokenizer_;
  Tokenizer::Workspace& workspace_;
  std::vector<std::uint32_t> anchor_;  // precedes a token that is decoded, so that it is not the first
  std::string anchor_text_;
  std::vector<std::optional<std::string>> surfaces_;  // indexed by id
  std::vector<jinja::Stretch> places_;
  std::vector<std::uint32_t> beginning_;
};

}  // namespace strata::text

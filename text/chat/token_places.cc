#include "text/chat/token_places.h"

#include <algorithm>

#include "text/template/values/python_text.h"

namespace strata::text {
namespace {

using jinja::Stretch;
constexpr std::size_t kMostInCharacter = 8;  // the most tokens of one character, with their neighbours

// The place in the text after `surface`, which begins at `at`. It may have, or lack, the space that a tokenizer puts
// before a word, and may follow white space that the tokenizer drops. npos if it is not there.
std::size_t end_of(std::string_view text, std::size_t at, std::string_view surface) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(surface)) return at + surface.size();
  if (surface.starts_with(' ') && rest.starts_with(surface.substr(1))) return at + surface.size() - 1;
  const std::size_t space = rest.size() - jinja::strip(rest, jinja::Side::left).size();
  if (space == 0) return std::string_view::npos;
  const std::string_view word = surface.starts_with(' ') ? surface.substr(1) : surface;
  if (word.empty() || !rest.substr(space).starts_with(word)) return std::string_view::npos;
  return at + space + word.size();
}

}  // namespace

TokenPlaces::TokenPlaces(const Tokenizer& tokenizer, Tokenizer::Workspace& workspace)
    : tokenizer_(tokenizer), workspace_(workspace), anchor_(tokenizer.encode("a")), surfaces_(tokenizer.vocab_size()) {
  anchor_text_ = tokenizer_.decode(anchor_, false);
}

std::string TokenPlaces::surface_of(std::span<const std::uint32_t> ids) const {
  std::vector<std::uint32_t> all = anchor_;
  all.insert(all.end(), ids.begin(), ids.end());
  std::string text = tokenizer_.decode(all, false);
  return text.starts_with(anchor_text_) ? text.substr(anchor_text_.size()) : tokenizer_.decode(ids, false);
}

const std::string& TokenPlaces::surface(std::uint32_t id) {
  auto& known = surfaces_[id];
  if (!known) known = surface_of({&id, 1});
  return *known;
}

bool TokenPlaces::align(std::string_view text, std::span<const std::uint32_t> ids) {
  places_.clear();
  std::size_t at = 0;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t count = 1, next = end_of(text, at, surface(ids[i]));
    // The bytes of one character may be spread over several tokens.
    while (next == std::string_view::npos && count < kMostInCharacter && i + count < ids.size())
      next = end_of(text, at, surface_of(ids.subspan(i, ++count)));
    if (next == std::string_view::npos) return false;
    places_.insert(places_.end(), count, {at, next});
    at = next;
    i += count;
  }
  return jinja::strip(text.substr(at), jinja::Side::left).empty();
}

std::optional<std::size_t> TokenPlaces::tokens_before(std::string_view text, std::size_t bytes,
                                                      std::span<const std::uint32_t> ids) {
  beginning_.clear();
  tokenizer_.encode(text.substr(0, bytes), false, workspace_, beginning_);
  const bool is = beginning_.size() <= ids.size() && std::equal(beginning_.begin(), beginning_.end(), ids.begin());
  return is ? std::optional(beginning_.size()) : std::nullopt;
}

bool TokenPlaces::mark(std::string_view text, std::span<const std::uint32_t> ids, std::span<const Stretch> labels,
                       std::vector<std::uint8_t>& counts) {
  counts.assign(ids.size(), 0);
  if (labels.empty()) return true;
  if (labels.size() == 1 && labels[0] == Stretch{0, text.size()}) {
    counts.assign(ids.size(), 1);
    return true;
  }
  if (align(text, ids)) {
    std::size_t label = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [begin, end] = places_[i];
      while (label < labels.size() && labels[label].end <= begin) ++label;
      counts[i] = label < labels.size() && end > labels[label].begin ? 1 : 0;
    }
    return true;
  }
  for (const Stretch& label : labels) {
    const auto begin = tokens_before(text, label.begin, ids), end = tokens_before(text, label.end, ids);
    if (!begin || !end) return false;
    std::fill(counts.begin() + static_cast<std::ptrdiff_t>(*begin), counts.begin() + static_cast<std::ptrdiff_t>(*end),
              1);
  }
  return true;
}

}  // namespace strata::text

#include "text/tokenizer.h"

namespace strata::text {
namespace {

constexpr std::string_view kReplacement = "\ufffd";
// A character has at most four bytes, so a longer incomplete text never becomes a character.
constexpr std::size_t kMaxHeld = 8;
constexpr std::size_t kMaxWindow = 64;

}  // namespace

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::vector<std::uint32_t> out;
  encode(text, add_special, *workspace(), out);
  return out;
}

std::optional<std::uint32_t> Tokenizer::mask_id() const {
  if (!mask_token_.empty())
    if (const auto id = id_of(mask_token_)) return id;
  for (const char* known : {"[MASK]", "<mask>"})
    if (const auto id = id_of(known)) return id;
  return std::nullopt;
}

std::string StreamDecoder::add(std::uint32_t id) {
  ids_.push_back(id);
  return emit(ids_.size() - done_ > kMaxHeld);
}

std::string StreamDecoder::finish() {
  std::string out = emit(true);
  ids_.clear();
  done_ = 0;
  return out;
}

std::string StreamDecoder::emit(bool all) {
  const std::string before = tokenizer_.decode(std::span(ids_).first(done_), skip_special_);
  const std::string now = tokenizer_.decode(ids_, skip_special_);
  if (now.size() <= before.size() || (!all && now.ends_with(kReplacement))) return {};
  // Keep the last text handed out as the beginning for the next ids. Also keep ids without a text of their own, such as
  // a space at the beginning of a text, because they affect the next ones.
  const auto last = std::span(ids_).subspan(done_);
  if (ids_.size() > kMaxWindow || !tokenizer_.decode(last, skip_special_).empty()) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(done_));
  }
  done_ = ids_.size();
  return now.substr(before.size());
}

}  // namespace strata::text

#include "text/pipeline/byte.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace strata::text {
namespace {

class Byte final : public Tokenizer {
 public:
  Byte() : Tokenizer("byte", fmt::format("{:016x}", XXH3_64bits("byte", 4))) {}

  std::uint32_t vocab_size() const override { return 256; }
  std::optional<std::uint32_t> end_of_text() const override { return std::nullopt; }
  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::vector<std::uint32_t> special_ids() const override { return {}; }
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Workspace>(); }
  void encode(std::string_view text, bool, Workspace&, std::vector<std::uint32_t>& out) const override {
    std::transform(text.begin(), text.end(), std::back_inserter(out),
                   [](char c) { return static_cast<unsigned char>(c); });
  }
  std::string decode(std::span<const std::uint32_t> ids, bool) const override {
    std::string out;
    for (const std::uint32_t id : ids) {
      if (id < 256) out += static_cast<char>(id);
    }
    return out;
  }
  TextCut safe_cut(std::string_view text, std::size_t limit) const override {
    const std::size_t end = std::min(limit, text.size());
    return {end, end};
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<Byte>();
}

}  // namespace strata::text

#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::text {

// Strings and their ids, walked byte by byte to find all strings that are prefixes of a text.
class ByteTrie {
 public:
  // A later equal string replaces the earlier one.
  void add(std::string_view text, std::uint32_t id) {
    std::uint32_t at = 0;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      std::uint32_t next = child(at, byte);
      if (next == 0) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({.child = 0, .sibling = nodes_[at].child, .id = kNone, .byte = byte});
        nodes_[at].child = next;
        if (at == 0) first_[byte] = next;
      }
      at = next;
    }
    nodes_[at].id = id;
  }
  // Calls found(bytes, id) for each string that is a prefix of `text`, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found&& found) const {
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      at = child(at, static_cast<unsigned char>(text[i]));
      if (at == 0) return;
      if (nodes_[at].id != kNone) found(i + 1, nodes_[at].id);
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    std::uint32_t child, sibling, id;
    unsigned char byte;
  };
  std::uint32_t child(std::uint32_t at, unsigned char byte) const {
    if (at == 0) return first_[byte];
    std::uint32_t next = nodes_[at].child;
    while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
    return next;
  }

  std::vector<Node> nodes_ = {{0, 0, kNone, 0}};
  std::array<std::uint32_t, 256> first_{};
};

}  // namespace strata::text

#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::text {

// Texts with a number for each. Finds all texts that are prefixes of another one, byte by byte.
class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  bool empty() const { return nodes_.size() == 1; }
  // The number of a text, which must not be empty; kNone if it was not in the trie. Valid until the next call.
  std::uint32_t& number_of(std::string_view text) {
    std::uint32_t at = 0;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      std::uint32_t next = child(at, byte);
      if (next == 0) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({.child = 0, .sibling = nodes_[at].child, .number = kNone, .byte = byte});
        nodes_[at].child = next;
        if (at == 0) first_[byte] = next;
      }
      at = next;
    }
    return nodes_[at].number;
  }
  // Calls found(bytes, number) for each text that is a prefix of `text`, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found&& found) const {
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      at = child(at, static_cast<unsigned char>(text[i]));
      if (at == 0) return;
      if (nodes_[at].number != kNone) found(i + 1, nodes_[at].number);
    }
  }

 private:
  // The children of a node form a list: the first child, then its siblings.
  struct Node {
    std::uint32_t child, sibling, number;
    unsigned char byte;
  };
  std::uint32_t child(std::uint32_t at, unsigned char byte) const {
    if (at == 0) return first_[byte];
    std::uint32_t next = nodes_[at].child;
    while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
    return next;
  }

  std::vector<Node> nodes_ = {{0, 0, kNone, 0}};
  std::array<std::uint32_t, 256> first_{};  // children of the root
};

}  // namespace strata::text

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "text/subwords/model.h"
#include "text/subwords/word_cache.h"
#include "text/unicode/byte_level.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
// Up to this length, scanning every pair for the first merge is faster than a heap.
constexpr std::size_t kShort = 64;

// The token into which two neighbouring tokens merge, and the rank of the merge.
struct Merge {
  std::uint32_t rank;
  std::uint32_t id;
};
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

// A hash table from pairs of tokens to their merges: open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(std::size_t count) {
    std::size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.resize(slots, {kEmpty, {kNoRank, 0}});
  }

  // A later merge of the same pair replaces the earlier one.
  void set(std::uint32_t left, std::uint32_t right, Merge merge) {
    const std::uint64_t key = key_of(left, right);
    std::size_t at = slot_of(key);
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, merge};
  }
  // rank is kNoRank if there is no merge.
  Merge find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t at = slot_of(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].merge;
      if (slots_[at].key == kEmpty) return {kNoRank, 0};
    }
  }

 private:
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15) >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

struct Symbol {
  std::uint32_t id;
  std::uint32_t previous, next;  // kNone at the ends
};
struct Candidate {
  std::uint32_t rank, at, id;
  // The top of the heap is the first merge: lowest rank, then leftmost.
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

class BytePair final : public Model {
 public:
  BytePair(const Json& json, bool bytes);

  struct Buffers final : Workspace {
    WordCache cache;
    std::vector<std::uint32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string text;
  };
  std::unique_ptr<Workspace> workspace() const override { return std::make_unique<Buffers>(); }

  void encode(std::string_view piece, Workspace& workspace, std::vector<std::uint32_t>& out) const override {
    auto& buffers = static_cast<Buffers&>(workspace);
    buffers.cache.append(piece, out, [&] { merge(piece, buffers, out); });
  }

 private:
  void read_merges(const Json& json);
  // Finds the ids of single characters (or bytes), before any merge.
  void start(std::string_view piece, Buffers& buffers) const;
  void merge(std::string_view piece, Buffers& buffers, std::vector<std::uint32_t>& out) const;
  void merge_short(Buffers& buffers) const;
  void merge_long(Buffers& buffers) const;

  bool bytes_, fuse_unknown_, byte_fallback_, ignore_merges_;
  std::optional<std::uint32_t> unknown_;
  std::string prefix_, suffix_;
  std::array<std::uint32_t, 256> byte_ids_{}, fallback_ids_{};
  MergeTable merges_{0};
  Vocabulary whole_;  // for ignore_merges with bytes: every token's bytes
};

BytePair::BytePair(const Json& json, bool bytes)
    : bytes_(bytes),
      fuse_unknown_(json.flag_or("fuse_unk", false)),
      byte_fallback_(json.flag_or("byte_fallback", false)),
      ignore_merges_(json.flag_or("ignore_merges", false)),
      prefix_(json.text_or("continuing_subword_prefix", "")),
      suffix_(json.text_or("end_of_word_suffix", "")) {
  if (const auto dropout = json.find("dropout"); dropout && dropout->number() != 0) {
    dropout->unsupported("dropout of merges");
  }
  vocabulary_ = read_vocabulary(json.at("vocab"));
  read_merges(json);
  if (const auto unknown = json.find("unk_token")) {
    unknown_ = vocabulary_.find(unknown->text());
    if (!unknown_) unknown->wrong("a token of the vocabulary");
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_character(kByteCharacters[byte], character);
    byte_ids_[byte] = vocabulary_.find(character).value_or(kNone);
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  if (!bytes_ || !ignore_merges_) return;
  vocabulary_.for_each([&](std::string_view token, std::uint32_t id) {
    if (const auto plain = bytes_of(token)) whole_.add_last(*plain, id, false);
  });
}

void BytePair::read_merges(const Json& json) {
  std::size_t count = 0;
  const Json list = json.at("merges");
  list.each([&](const Json&) { ++count; });
  merges_ = MergeTable(count);
  std::uint32_t rank = 0;
  std::string merged;
  list.each([&](const Json& pair) {
    std::string_view parts[2];
    if (pair.is_text()) {
      const std::string_view text = pair.text();
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        pair.wrong("two tokens with a space between");
      }
      parts[0] = text.substr(0, space);
      parts[1] = text.substr(space + 1);
    } else {
      std::size_t n = 0;
      pair.each([&](const Json& part) {
        if (n < 2) parts[n] = part.text();
        ++n;
      });
      if (n != 2) pair.wrong("two tokens");
    }
    const auto left = vocabulary_.find(parts[0]), right = vocabulary_.find(parts[1]);
    if (parts[1].size() < prefix_.size()) pair.wrong("a second token with the prefix");
    merged.assign(parts[0]).append(parts[1].substr(prefix_.size()));
    const auto id = vocabulary_.find(merged);
    if (!left || !right || !id) pair.wrong("two tokens of the vocabulary whose concatenation is one too");
    merges_.set(*left, *right, {rank++, *id});
  });
}

void BytePair::start(std::string_view piece, Buffers& buffers) const {
  buffers.ids.clear();
  bool unknown = false;  // an unknown token that is held back, so that the unknown tokens after it can join it
  const auto put_unknown = [&] {
    if (unknown) buffers.ids.push_back(*unknown_);
    unknown = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t n = bytes_ ? 1 : character_at(piece, at).bytes;
    const bool first = at == 0, last = at + n == piece.size();
    std::string_view token = piece.substr(at, n);
    at += n;
    std::uint32_t id = kNone;
    if (bytes_) {
      id = byte_ids_[static_cast<unsigned char>(token[0])];
    } else {
      if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
        buffers.text.assign(first ? "" : prefix_).append(token).append(last ? suffix_ : "");
        token = buffers.text;
      }
      id = vocabulary_.find(token).value_or(kNone);
    }
    if (id != kNone) {
      put_unknown();
      buffers.ids.push_back(id);
      continue;
    }
    const auto fallback = [&](char c) { return fallback_ids_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ && std::all_of(token.begin(), token.end(), [&](char c) { return fallback(c) != kNone; })) {
      for (const char c : token) buffers.ids.push_back(fallback(c));
    } else if (unknown_) {
      if (!fuse_unknown_) put_unknown();
      unknown = true;
    }
  }
  put_unknown();
}

void BytePair::merge(std::string_view piece, Buffers& buffers, std::vector<std::uint32_t>& out) const {
  if (ignore_merges_) {
    if (const auto id = (bytes_ ? whole_ : vocabulary_).find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  start(piece, buffers);
  if (buffers.ids.size() <= kShort) {
    merge_short(buffers);
  } else {
    merge_long(buffers);
  }
  out.insert(out.end(), buffers.ids.begin(), buffers.ids.end());
}

void BytePair::merge_short(Buffers& buffers) const {
  std::uint32_t* const ids = buffers.ids.data();
  std::size_t n = buffers.ids.size();
  std::array<Merge, kShort> pairs;  // the merge of each symbol with the next
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) best = pairs[i].rank < pairs[best].rank ? i : best;
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].id;
    --n;
    std::copy(ids + best + 2, ids + n + 1, ids + best + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + n, pairs.begin() + best);
    if (best + 1 < n) pairs[best] = merges_.find(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
  }
  buffers.ids.resize(n);
}

void BytePair::merge_long(Buffers& buffers) const {
  auto& symbols = buffers.symbols;
  auto& heap = buffers.heap;
  const auto n = static_cast<std::uint32_t>(buffers.ids.size());
  symbols.clear();
  heap.clear();
  for (std::uint32_t i = 0; i < n; ++i) symbols.push_back({buffers.ids[i], i - 1, i + 1 < n ? i + 1 : kNone});
  const auto candidate = [&](std::uint32_t at) -> Candidate {
    const Merge merge = merges_.find(symbols[at].id, symbols[symbols[at].next].id);
    return {merge.rank, at, merge.id};
  };
  const auto push = [&](std::uint32_t at) {
    const Candidate made = candidate(at);
    if (made.rank == kNoRank) return;
    heap.push_back(made);
    std::push_heap(heap.begin(), heap.end());
  };
  for (std::uint32_t i = 0; i + 1 < n; ++i) {
    const Candidate made = candidate(i);
    if (made.rank != kNoRank) heap.push_back(made);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Symbol& left = symbols[top.at];
    // The pair is outdated: one of its two symbols has been merged in the meantime.
    if (left.id == kNone || left.next == kNone || candidate(top.at).rank != top.rank) continue;
    Symbol& right = symbols[left.next];
    left.id = top.id;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = top.at;
    if (left.previous != kNone) push(left.previous);
    if (left.next != kNone) push(top.at);
  }
  buffers.ids.clear();
  for (std::uint32_t at = 0; at != kNone; at = symbols[at].next) buffers.ids.push_back(symbols[at].id);
}

}  // namespace

bool takes_bytes(const Json& json) {
  return json.text_or("continuing_subword_prefix", "").empty() && json.text_or("end_of_word_suffix", "").empty() &&
         !json.flag_or("byte_fallback", false);
}

std::unique_ptr<Model> make_byte_pair(const Json& json, bool bytes) {
  return std::make_unique<BytePair>(json, bytes);
}

}  // namespace strata::text

#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strata::text {

// Strings and their ids, in both directions. Ids need not be dense.
class Vocabulary {
 public:
  // Adds a string with its id. If either exists already, changes nothing and returns false.
  bool add(std::string_view token, std::uint32_t id);
  // Adds a string as the tokenizers library does when it reads a file. If the string exists, `id` replaces its id, and
  // with `keeps` the earlier id still decodes to it. If `id` exists, the string gets it, but the id still decodes to
  // its first string.
  void add_last(std::string_view token, std::uint32_t id, bool keeps);

  std::optional<std::uint32_t> find(std::string_view token) const {
    const auto found = entries_.find(token);
    return found == entries_.end() ? std::nullopt : std::optional(found->second.id);
  }
  // nullptr if the id does not exist.
  const std::string* token(std::uint32_t id) const { return id < tokens_.size() ? tokens_[id] : nullptr; }
  // One more than the largest id.
  std::uint32_t limit() const { return static_cast<std::uint32_t>(tokens_.size()); }
  // The number of entries. Strings that share an id count separately.
  std::size_t count() const { return count_; }
  // f(string, id), in no order.
  template <typename F>
  void for_each(F&& f) const {
    for (const auto& [token, entry] : entries_) f(token, entry.id);
  }
  // The first string that was added again, and the number of such repetitions; nullptr and 0 if there was none.
  const std::string* repeated() const { return repeated_; }
  std::size_t repetitions() const { return repetitions_; }
  // Likewise for strings that got the id of another string.
  const std::string* sharing() const { return sharing_; }
  std::size_t shared_ids() const { return shared_ids_; }

 private:
  std::deque<std::string> storage_;
  struct Entry {
    std::uint32_t id;
    const std::string* text;
  };
  std::unordered_map<std::string_view, Entry> entries_;
  std::vector<const std::string*> tokens_;
  const std::string *repeated_ = nullptr, *sharing_ = nullptr;
  std::size_t count_ = 0, repetitions_ = 0, shared_ids_ = 0;
};

// The largest id allowed in a tokenizer.json. It limits the memory that a broken file can make the program allocate.
constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;

}  // namespace strata::text

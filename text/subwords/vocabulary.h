#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strata::text {

// Strings and their ids, both ways. Ids need not be dense.
class Vocabulary {
 public:
  // An id or a string that is there already stays; false then.
  bool add(std::string_view token, std::uint32_t id);
  // As add, but a string that is there is found under `id` from now on; its earlier id stays one of its own if `keeps`.
  // false if `id` is there already.
  bool add_last(std::string_view token, std::uint32_t id, bool keeps);

  std::optional<std::uint32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // nullptr if the id is none.
  const std::string* token(std::uint32_t id) const { return id < tokens_.size() ? tokens_[id] : nullptr; }
  // Above the largest id.
  std::uint32_t limit() const { return static_cast<std::uint32_t>(tokens_.size()); }
  // Ids that are in use.
  std::size_t count() const { return count_; }
  // A string that came more than once, and how many there are; nullptr and 0 if none is.
  const std::string* repeated() const { return repeated_; }
  std::size_t repetitions() const { return repetitions_; }

 private:
  std::deque<std::string> storage_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::vector<const std::string*> tokens_;
  const std::string* repeated_ = nullptr;
  std::size_t count_ = 0, repetitions_ = 0;
};

// The largest id of a tokenizer.json: a bound on what a broken file makes us take.
constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;

}  // namespace strata::text

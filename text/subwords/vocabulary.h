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

  std::optional<std::uint32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  // nullptr if the id is none.
  const std::string* token(std::uint32_t id) const { return id < tokens_.size() ? tokens_[id] : nullptr; }
  // Above the largest id.
  std::uint32_t limit() const { return static_cast<std::uint32_t>(tokens_.size()); }
  std::size_t count() const { return ids_.size(); }

 private:
  std::deque<std::string> storage_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::vector<const std::string*> tokens_;
};

// The largest id of a tokenizer.json: a bound on what a broken file makes us take.
constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;

}  // namespace strata::text

#include "text/subwords/vocabulary.h"

namespace strata::text {

bool Vocabulary::add(std::string_view token, std::uint32_t id) {
  if (ids_.contains(token) || this->token(id) != nullptr) return false;
  const std::string& kept = storage_.emplace_back(token);
  ids_.emplace(kept, id);
  if (id >= tokens_.size()) tokens_.resize(id + std::size_t{1});
  tokens_[id] = &kept;
  ++count_;
  return true;
}

bool Vocabulary::add_last(std::string_view token, std::uint32_t id, bool keeps) {
  const auto there = ids_.find(token);
  if (there == ids_.end()) return add(token, id);
  if (this->token(id) != nullptr) return false;
  const std::string* const kept = tokens_[there->second];
  if (repeated_ == nullptr) repeated_ = kept;
  ++repetitions_;
  if (!keeps) tokens_[there->second] = nullptr;
  if (keeps) ++count_;
  there->second = id;
  if (id >= tokens_.size()) tokens_.resize(id + std::size_t{1});
  tokens_[id] = kept;
  return true;
}

}  // namespace strata::text

#include "text/subwords/vocabulary.h"

namespace strata::text {

bool Vocabulary::add(std::string_view token, std::uint32_t id) {
  if (ids_.contains(token) || this->token(id) != nullptr) return false;
  const std::string& kept = storage_.emplace_back(token);
  ids_.emplace(kept, id);
  if (id >= tokens_.size()) tokens_.resize(id + std::size_t{1});
  tokens_[id] = &kept;
  return true;
}

}  // namespace strata::text

#include "text/subwords/vocabulary.h"

namespace strata::text {

bool Vocabulary::add(std::string_view token, std::uint32_t id) {
  if (entries_.contains(token) || this->token(id) != nullptr) return false;
  add_last(token, id, false);
  return true;
}

void Vocabulary::add_last(std::string_view token, std::uint32_t id, bool keeps) {
  auto there = entries_.find(token);
  if (there == entries_.end()) {
    const std::string& text = storage_.emplace_back(token);
    there = entries_.emplace(text, Entry{id, &text}).first;
    ++count_;
  } else {
    Entry& entry = there->second;
    if (repeated_ == nullptr) repeated_ = entry.text;
    ++repetitions_;
    if (keeps)
      ++count_;
    else if (tokens_[entry.id] == entry.text)
      tokens_[entry.id] = nullptr;
    entry.id = id;
  }
  if (id >= tokens_.size()) tokens_.resize(id + std::size_t{1});
  if (tokens_[id] == nullptr) {
    tokens_[id] = there->second.text;
    return;
  }
  if (sharing_ == nullptr) sharing_ = there->second.text;
  ++shared_ids_;
}

}  // namespace strata::text

#pragma once
// text/subwords/ finds the ids of one piece: BPE (byte_pair.cc), unigrams (unigram.cc), WordPiece and WordLevel
// (word_piece.cc). Open this interface first. word_cache.h caches the ids of words.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/json/json.h"
#include "text/subwords/vocabulary.h"

namespace strata::text {

// The "model" of a tokenizer.json: maps a piece of text to ids. Immutable.
class Model {
 public:
  // One thread's buffers and caches.
  class Workspace {
   public:
    virtual ~Workspace() = default;
  };

  virtual ~Model() = default;
  virtual std::unique_ptr<Workspace> workspace() const = 0;
  // Appends the ids of a piece, which must not be empty.
  virtual void encode(std::string_view piece, Workspace& workspace, std::vector<std::uint32_t>& out) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Byte-pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909), the "BPE" of a tokenizer.json.
// Repeatedly merges the neighbouring pair whose merge comes first in the list, leftmost first, until no pair has a
// merge. Takes O(n log n) in a piece's length. `bytes`: pieces are plain bytes, each of which stands for its character
// in GPT-2's alphabet.
std::unique_ptr<Model> make_byte_pair(const Json& json, bool bytes);
// Whether the model accepts plain bytes, because no prefix, suffix or fallback looks at characters.
bool takes_bytes(const Json& json);

std::unique_ptr<Model> make_word_piece(const Json& json);
std::unique_ptr<Model> make_word_level(const Json& json);
std::unique_ptr<Model> make_unigram(const Json& json);

// Reads "vocab", an object of strings and ids. Throws Error{corrupt} if two strings have the same id.
Vocabulary read_vocabulary(const Json& json);

}  // namespace strata::text

#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/classes/record_labels.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace strata::text {

// Which of two texts is truncated if both together are too long, with the names used by Hugging Face's tokenizers.
enum class Truncation {
  longest_first,  // the longer one, until both have the same length
  only_first,
  only_second,
  none,  // do_not_truncate: refuse text that is too long
};
std::optional<Truncation> truncation(std::string_view name);
std::string_view name_of(Truncation truncation);
// Throws Error{usage} if the strategy truncates a second text but there is none.
void require_possible(Truncation truncation, bool pairs);

// The token counts of a text, and of the second one of a pair.
struct TextLengths {
  std::size_t first = 0, second = 0;

  std::size_t sum() const { return first + second; }
};
// Shortens `lengths` to a sum of at most `most`, as the tokenizers library does. nullopt if the strategy cannot.
std::optional<TextLengths> truncated(const TextLengths& lengths, std::size_t most, Truncation truncation);

// How each text is tokenized.
struct ClassRules {
  LabelRules record;
  std::optional<std::size_t> max_length = std::nullopt;  // in tokens, including the template's
  Truncation truncation = Truncation::longest_first;
  bool takes_empty = false;  // accept texts without tokens: only the template's remain
};

// The documents of a part; `begins`: the index of each document's first token.
struct ClassTokens {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> types;  // token types, 0 or 1
  std::vector<std::size_t> begins;
  std::vector<DocumentLabels> labels;
  std::string name;                // the file's name
  std::vector<std::size_t> words;  // the number of words in each document, including words without tokens; 0 for a text
  std::uint64_t cut = 0;           // documents that were truncated

  void clear();
};

// Tokenizes records and adds the tokenizer's template. One per thread. The first token of each word has the word's
// label; the other tokens of the word and those of the template have none. Throws Error{corrupt} with file, line, and
// what is wrong.
class ClassTokenizer {
 public:
  // Throws Error{usage} if the tokenizer has no template for what `rules` require.
  ClassTokenizer(const Tokenizer& tokenizer, const ClassRules& rules);

  void run(const DocumentPart& part, ClassTokens& out);
  // Adds a document. Throws RecordFault.
  void add(const ClassRecord& record, ClassTokens& out);

 private:
  void encode_words(const ClassRecord& record, std::vector<std::optional<LabelValue>>& labels);
  void cut(std::vector<std::uint32_t>& ids, std::size_t length) const;

  const Tokenizer& tokenizer_;
  const ClassRules& rules_;
  std::unique_ptr<Tokenizer::Workspace> workspace_;
  std::vector<TextTemplate::Piece> pair_;  // the layout of two texts; empty: the tokenizer has no template for pairs
  std::vector<std::uint32_t> first_, second_;
};

}  // namespace strata::text

#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "text/classes/record_labels.h"
#include "text/classes/truncation.h"
#include "text/documents.h"
#include "text/text_template.h"
#include "text/tokenizer.h"

namespace strata::text {

// What becomes of each text.
struct ClassRules {
  LabelRules record;
  std::optional<std::size_t> max_length = std::nullopt;  // tokens, with those of the template
  Truncation truncation = Truncation::longest_first;
  bool takes_empty = false;  // texts without tokens, as the template alone
};

// Documents of a part: each begins where `begins` says.
struct ClassTokens {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> types;  // token types: 0 or 1
  std::vector<std::size_t> begins;
  std::vector<DocumentLabels> labels;
  std::string name;                // of the file
  std::vector<std::size_t> words;  // of each document, with those that have no token; 0 of a text
  std::uint64_t cut = 0;           // documents that lost tokens

  void clear();
};

// Turns records into tokens within the tokenizer's template; one for each thread. The first token of a word has its
// label, the others none, and so have those of the template. Throws Error{corrupt}: file, line, what is wrong.
class ClassTokenizer {
 public:
  // Throws Error{usage} if the tokenizer has no template for what `rules` ask for.
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
  std::vector<TextTemplate::Piece> pair_;  // how two texts are written; empty: nobody has said
  std::vector<std::uint32_t> first_, second_;
};

}  // namespace strata::text

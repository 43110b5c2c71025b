#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace strata::text {

// A part of the input, to tokenize by itself.
struct DocumentPart {
  std::string name;  // of the input, for messages
  bool jsonl = false;
  bool begins = false;       // plain text: a document begins here; else it continues
  bool ends = false;         // plain text: and ends here
  std::uint64_t line = 1;    // JSONL: number of the first line, from 1,
  std::uint64_t offset = 0;  // and where it begins in the file
  std::string text;
};

// Reads inputs front to back, one after the other: text files, each a document, in parts cut where the tokenizer says
// that it may be; JSONL in whole lines. Throws Error{usage} if an input is missing, Error{failed} if it cannot be
// read.
class DocumentReader {
 public:
  // An input is JSONL if its name ends in .jsonl; "-", standard input, if stdin_jsonl says so.
  // cut: whether plain text may be cut at all.
  DocumentReader(std::vector<std::string> inputs, bool stdin_jsonl, bool cut, const Tokenizer& tokenizer);
  ~DocumentReader();

  // False at the end.
  bool next(DocumentPart& part);

 private:
  class Input;
  // Where the part in hand ends, 0 if more must be read first, and where the next one begins.
  Tokenizer::TextCut end_of_part() const;

  std::vector<std::string> inputs_;
  bool stdin_jsonl_, cut_;
  const Tokenizer& tokenizer_;
  std::size_t next_input_ = 0;
  std::unique_ptr<Input> input_;
  std::string text_;        // read and not handed out yet
  std::size_t wanted_ = 0;  // bytes in hand before the next look for an end
  bool jsonl_ = false, begins_ = false;
  std::uint64_t line_ = 1, offset_ = 0;
};

}  // namespace strata::text

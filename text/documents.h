#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/input/input_bytes.h"
#include "text/tokenizer.h"

namespace strata::text {

// How an input holds documents.
enum class InputKind {
  plain,        // it is one
  lines,        // JSON in each line
  comma_table,  // CSV: one in each record
  tab_table,    // TSV
};
struct DocumentInput {
  std::string name;  // "-": standard input
  InputKind kind = InputKind::plain;
};
// By the ending of a file's name, in letters of any case, with or without that of a compression: .jsonl, .ndjson and
// .jsonlines are lines, .csv and .tsv tables. nullopt for any other, and for standard input.
std::optional<InputKind> kind_of_name(std::string_view name);

// A part of the input, to tokenize by itself.
struct DocumentPart {
  std::string name;  // of the input, for messages
  InputKind kind = InputKind::plain;
  bool begins = false;       // plain text: a document begins here; else it continues
  bool ends = false;         // plain text: and ends here
  std::string header = {};   // tables: the record with the names of the fields,
  char separator = ',';      // and what stands between two fields
  std::uint64_t line = 1;    // lines and tables: number of the first line, from 1,
  std::uint64_t offset = 0;  // and where it begins in the file
  std::string text;
};

// Reads inputs front to back, one after the other: text files, each a document, in parts cut where the tokenizer says
// that it may be; lines and tables in whole records. Throws what InputBytes does, and Error{corrupt} if more than 1% of
// a plain text's bytes are not UTF-8 (of its first MiB, or of all of it), unless the tokenizer is `byte`.
class DocumentReader {
 public:
  // cut: whether plain text may be cut at all.
  DocumentReader(std::vector<DocumentInput> inputs, bool cut, const Tokenizer& tokenizer);

  // False at the end.
  bool next(DocumentPart& part);
  // The part that next() will give; null at the end.
  const DocumentPart* peek();
  // What a user should know of the inputs that were read so far, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // Where the part in hand ends, 0 where more must be read first, and where the next one begins.
  Tokenizer::TextCut end_of_part();
  bool read(DocumentPart& part);
  void open(const DocumentInput& input);
  bool read_header();
  void look_at_text(std::string_view text);
  void close();

  std::vector<DocumentInput> inputs_;
  bool cut_;
  const Tokenizer& tokenizer_;
  std::size_t next_input_ = 0;
  std::optional<InputBytes> input_;
  std::optional<Utf8Count> utf8_;  // of a plain text
  bool looked_ = false;            // at the share of its bytes that are not UTF-8
  std::vector<std::string> notes_;
  std::optional<DocumentPart> ahead_;
  std::string text_;        // read and not handed out yet
  std::size_t wanted_ = 0;  // bytes in hand before the next look for an end
  InputKind kind_ = InputKind::plain;
  std::string header_;
  char separator_ = ',';
  std::size_t record_ = 0;  // tables: where in `text_` the first record begins whose end is not there yet
  bool begins_ = false;
  std::uint64_t line_ = 1, offset_ = 0;
};

}  // namespace strata::text

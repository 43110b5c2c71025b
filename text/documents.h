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

// How an input is split into documents.
enum class InputKind {
  plain,        // the whole input is one document
  lines,        // one JSON value per line
  comma_table,  // CSV, one document per record
  tab_table,    // TSV
};
struct DocumentInput {
  std::string name;  // "-" is standard input
  InputKind kind = InputKind::plain;
};
// The kind, from the extension of the file name, in upper or lower case and before the extension of a compression:
// .jsonl, .ndjson and .jsonlines are lines, .csv and .tsv are tables. nullopt for any other extension, and for standard
// input.
std::optional<InputKind> kind_of_name(std::string_view name);

// A part of the input that can be tokenized on its own.
struct DocumentPart {
  std::string name;  // the input's name, for messages
  InputKind kind = InputKind::plain;
  bool begins = false;       // plain text: a document begins with this part; otherwise it continues
  bool ends = false;         // plain text: the document ends with this part
  std::string header = {};   // tables: the record with the field names
  char separator = ',';      // tables: the separator of fields
  std::uint64_t line = 1;    // lines and tables: the number of the first line, from 1
  std::uint64_t offset = 0;  // lines and tables: the offset of that line in the file
  std::string text;
};

// Reads inputs from front to back, one after another. A text file is one document. It is read in parts that end where
// the tokenizer allows a cut. Lines and tables are read in whole records. Throws what InputBytes throws, and
// Error{corrupt} if more than 1% of a plain text's bytes (in the first MiB, or in the whole text) are not UTF-8, unless
// the tokenizer is `byte`.
class DocumentReader {
 public:
  // cut: whether plain text may be cut into parts.
  DocumentReader(std::vector<DocumentInput> inputs, bool cut, const Tokenizer& tokenizer);

  // False at the end of the last input.
  bool next(DocumentPart& part);
  // The part that next() will return; null at the end.
  const DocumentPart* peek();
  // One-sentence notes for the user about the inputs read so far.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // The end of the current part (0 if more must be read first), and the beginning of the next one.
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
  std::optional<Utf8Count> utf8_;  // only for plain text
  bool looked_ = false;            // the share of invalid UTF-8 has been checked
  std::vector<std::string> notes_;
  std::optional<DocumentPart> ahead_;
  std::string text_;        // text that was read but not handed out yet
  std::size_t wanted_ = 0;  // the number of bytes to collect before the next search for an end
  InputKind kind_ = InputKind::plain;
  std::string header_;
  char separator_ = ',';
  std::size_t record_ = 0;  // tables: the start in `text_` of the first record whose end has not been read
  bool begins_ = false;
  std::uint64_t line_ = 1, offset_ = 0;
};

}  // namespace strata::text

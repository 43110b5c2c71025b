#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/files/atomic_file.h"
#include "launcher/outputs.h"
#include "text/chat/chat_template.h"
#include "text/classes/class_tokenizer.h"
#include "text/classes/label_writer.h"
#include "text/token_writer.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// The files that a tokenization writes: OUT.bin (tokens), OUT.bin.documents (where documents begin), OUT.bin.mask
// (which tokens count as labels), OUT.bin.types (token types), OUT.bin.labels.jsonl (the documents' labels), and
// OUT.bin.json, which describes the other files. Either all are replaced or none.
class TokenOutput {
 public:
  // Throws Error{usage} if an output is also an input, or would overwrite something else.
  TokenOutput(std::filesystem::path out, const std::vector<NamedFile>& inputs, bool force);

  // Opens the files. Call this once. masked: not every token counts as a label, so a mask is written.
  text::TokenWriter& open(const text::Tokenizer& tokenizer, std::optional<std::uint32_t> separator, bool masked);
  // Records that this template wrote the documents, which are conversations.
  void written_by(const text::ChatTemplate& made) { made_ = &made; }
  // Call these after open(), for the types of its tokens (written unless all are 0) and the documents' labels.
  text::BitFile& open_types();
  text::LabelWriter& open_labels(const text::ClassRules& rules);
  // Puts the files in place and prints a summary of them. Throws Error{usage} if no token is left to train on.
  enum class Summary : std::uint8_t { printed, none };
  void commit(Summary summary = Summary::printed);

 private:
  std::filesystem::path out_, sidecar_, documents_, mask_, types_, labels_;
  std::optional<AtomicFile> tokens_file_, sidecar_file_, documents_file_, mask_file_, types_file_, labels_file_;
  std::optional<text::TokenWriter> writer_;
  std::optional<text::BitFile> types_writer_;
  std::optional<text::LabelWriter> labels_writer_;
  const text::Tokenizer* tokenizer_ = nullptr;
  const text::ChatTemplate* made_ = nullptr;
  int width_ = 2;
  text::ClassRules rules_;
};

}  // namespace strata::launcher

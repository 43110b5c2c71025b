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

// What a tokenization writes: OUT.bin, where documents begin in OUT.bin.documents, which tokens count as labels in
// OUT.bin.mask, token types in OUT.bin.types, what documents are in OUT.bin.labels.jsonl, and OUT.bin.json, which names
// them. All are replaced, or none.
class TokenOutput {
 public:
  // Throws Error{usage} if one of them is an input, or something else that would be written over.
  TokenOutput(std::filesystem::path out, const std::vector<NamedFile>& inputs, bool force);

  // Opens the files, once. masked: not every token counts as a label, so that there is a mask.
  text::TokenWriter& open(const text::Tokenizer& tokenizer, std::optional<std::uint32_t> separator, bool masked);
  // The documents are conversations that this template writes.
  void written_by(const text::ChatTemplate& made) { made_ = &made; }
  // After open(): the types of its tokens, written beside them unless all are 0; and the labels of documents.
  text::BitFile& open_types();
  text::LabelWriter& open_labels(const text::ClassRules& rules);
  // Puts the files in place and tells what they hold. Throws Error{usage} if that is nothing.
  enum class Tells : std::uint8_t { what_they_hold, nothing };
  void commit(Tells tells = Tells::what_they_hold);

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

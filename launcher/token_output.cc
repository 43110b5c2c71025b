#include "launcher/token_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/outputs.h"
#include "launcher/screen/printable.h"
#include "runtime/data/files/tokens.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

void remove_old(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail(Exit::failed, "{} cannot be replaced: {}", path.string(), error.message());
}

// Prints what was found, so that a column that is not a label is noticed immediately.
void describe(const text::LabelSummary& labels) {
  if (labels.problem == "regression") {
    say("labels: numbers from {} to {} (regression)", labels.least, labels.most);
    if (labels.all_whole)
      note("all of these numbers are integers: if they are classes, write them without a decimal point (1, not 1.0)");
    return;
  }
  constexpr std::size_t kShown = 12, kLetters = 24;
  std::string list;
  for (std::size_t i = 0; i < std::min(labels.names.size(), kShown); ++i)
    list += fmt::format("{}{} ({})", i > 0 ? ", " : "", excerpt(labels.names[i], kLetters), labels.counts[i]);
  if (labels.names.size() > kShown) list += ", ...";
  say("labels: {} ({}): {}", counted(labels.names.size(), "class", "classes"), labels.problem, list);
  if (labels.vectors) note("each list is read as a vector: a 0 or 1 for each class, LABEL_0, LABEL_1 and so on");
  if (labels.one_per_word)
    note(
        "each list has as many entries as its text has words: if they are labels of words, give the words as a list, "
        "too "
        "(--field)");
  constexpr std::size_t kMany = 100;
  if (!labels.vectors && labels.names.size() >= kMany && labels.names.size() > labels.documents / 2)
    note(fmt::format("{} documents have {} different labels: check that this field is a label", labels.documents,
                     labels.names.size()));
}

}  // namespace

TokenOutput::TokenOutput(fs::path out, const std::vector<NamedFile>& inputs, bool force)
    : out_(std::move(out)),
      sidecar_(runtime::sidecar_path(out_)),
      documents_(runtime::documents_path(out_)),
      mask_(runtime::mask_path(out_)),
      types_(runtime::types_path(out_)),
      labels_(runtime::labels_path(out_)) {
  const NamedFile tokens{"--out", out_}, sidecar{"its sidecar", sidecar_}, documents{"its documents", documents_},
      mask{"its mask", mask_}, types{"its token types", types_}, labels{"its labels", labels_};
  require_place(tokens);
  require_apart({tokens, sidecar, documents, mask, types, labels}, inputs);
  require_own(sidecar, Content::sidecar, force);  // first, because the sidecar identifies the other files
  require_own(tokens, Content::tokens, force);
  require_own(documents, Content::documents, force);
  require_own(mask, Content::mask, force);
  require_own(types, Content::types, force);
  require_own(labels, Content::labels, force);
}

text::TokenWriter& TokenOutput::open(const text::Tokenizer& tokenizer, std::optional<std::uint32_t> separator,
                                     bool masked) {
  STRATA_CHECK(!writer_);
  tokenizer_ = &tokenizer;
  width_ = tokenizer.vocab_size() < 65536 ? 2 : 4;
  tokens_file_.emplace(out_);
  sidecar_file_.emplace(sidecar_);
  documents_file_.emplace(documents_);
  if (masked) mask_file_.emplace(mask_);
  return writer_.emplace(*tokens_file_, *documents_file_, masked ? &*mask_file_ : nullptr, width_, separator);
}

text::BitFile& TokenOutput::open_types() {
  return types_writer_.emplace(types_file_.emplace(types_));
}

text::LabelWriter& TokenOutput::open_labels(const text::ClassRules& rules) {
  rules_ = rules;
  return labels_writer_.emplace(labels_file_.emplace(labels_), rules.record.labels);
}

void TokenOutput::commit(Summary summary) {
  STRATA_CHECK(writer_);
  const text::TokenWriter& writer = *writer_;
  writer_->finish();
  if (writer.count() == 0) fail(Exit::usage, "there is no text in the input, so there is nothing to tokenize");
  if (mask_file_ && writer.labels() == 0) fail(Exit::usage, "there are no trainable tokens in the input");
  runtime::TokenSidecar sidecar{.vocab_size = tokenizer_->vocab_size(),
                                .width = width_,
                                .tokenizer = tokenizer_->name(),
                                .tokenizer_hash = tokenizer_->hash(),
                                .hash = writer.hash(),
                                .count = writer.count()};
  sidecar.special_tokens = tokenizer_->special_ids();
  sidecar.mask_token = tokenizer_->mask_id();
  sidecar.documents = {writer.documents(), writer.documents_hash()};
  if (mask_file_) sidecar.mask = {writer.labels(), writer.mask_hash()};
  if (made_) {
    sidecar.chat_template = made_->name();
    sidecar.chat_template_hash = made_->hash();
  }
  if (types_writer_) types_writer_->finish();
  if (types_writer_ && types_writer_->ones() == 0) types_file_.reset();  // without the file, every token has type 0
  if (types_file_) sidecar.types = {types_writer_->ones(), types_writer_->hash()};
  if (labels_writer_) {
    const text::LabelSummary labels = labels_writer_->finish();
    sidecar.labels = {labels.documents, labels_writer_->hash(), labels.problem, labels.names,
                      rules_.record.pair.has_value()};
    sidecar.labels->vectors = labels.vectors;
    sidecar.labels->field = rules_.record.text;
    sidecar.labels->pair = rules_.record.pair.value_or("");
    if (rules_.max_length) {
      sidecar.labels->max_length = static_cast<std::int64_t>(*rules_.max_length);
      sidecar.labels->truncation = name_of(rules_.truncation);
    }
    describe(labels);
  }
  sidecar_file_->write(runtime::to_json(sidecar));
  // Remove an older sidecar first: until the last rename the tokens have no sidecar, but never that of another file.
  remove_old(sidecar_);
  if (!mask_file_) remove_old(mask_);
  if (!types_file_) remove_old(types_);
  if (!labels_file_) remove_old(labels_);
  tokens_file_->commit();
  documents_file_->commit();
  if (mask_file_) mask_file_->commit();
  if (types_file_) types_file_->commit();
  if (labels_file_) labels_file_->commit();
  sidecar_file_->commit();
  if (summary == Summary::none) return;
  std::string line = fmt::format("{}: {} in {}", printable(out_.string()), counted(writer.count(), "token"),
                                 counted(writer.documents(), "document"));
  if (mask_file_)
    line += fmt::format(", of which {} as labels",
                        writer.labels() == 1 ? "1 counts" : fmt::format("{} count", writer.labels()));
  if (writer.empty_documents() > 0)
    line += fmt::format("; {} left out", counted(writer.empty_documents(), "empty one"));
  print_to_stderr(line + "\n");
}

}  // namespace strata::launcher

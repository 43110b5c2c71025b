#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/data/sequences/sequences.h"
#include "runtime/plan/job.h"
#include "runtime/recipe/evaluation_metric.h"

namespace strata::runtime {

// The properties of an objective, for code that does not distinguish objectives.
struct ObjectiveRules {
  // See MakeLabelling; null: each row predicts the next token. Throws Error{usage} if the files lack what the objective
  // needs.
  std::shared_ptr<Labelling> (*labelling)(const Workload& workload, std::span<const TokenFile> files,
                                          std::uint64_t stream);
  // The rows that enter the loss in a document of `rows` rows; nullopt: all of them.
  std::optional<std::uint32_t> (*loss_rows)(const Recipe& recipe, std::uint32_t rows);
  // data.packing = "auto" means documents if the token files say where documents begin.
  bool of_documents;
  // True if models trained on the objective continue a text.
  bool generates;
  // The kind of predictions that evaluations score, which determines their metrics.
  PredictionKind (*predictions)(const Workload& workload);
  // Called once the data are resolved. Adds notes about parts of the data that are ignored or unexpected.
  // `of_validation`: the labels of the validation data, if the run evaluates and the files have labels; otherwise null.
  // Throws Error{usage} for faults that would end the run later.
  void (*look)(Workload& workload, const LabelColumn* of_validation);
};

// Causal language modelling: every row predicts the next token of its document.
extern const ObjectiveRules kCausalLm;
// Masked language modelling (Devlin et al. 2018). In each document, max(1, round(p n)) of the n eligible tokens are
// predicted: those with the smallest random numbers for seed, epoch and place. Of these, 80% are masked, 10% become a
// random token, and 10% stay. Special tokens, and those that the data's mask excludes, are never selected.
extern const ObjectiveRules kMaskedLm;
// A class, several classes or a number per document. The loss uses the row of the document's first token or, in
// families that predict the next token, of its last.
extern const ObjectiveRules kSequenceClassification;
// A class per word, at the word's first token.
extern const ObjectiveRules kTokenClassification;

// For objectives that predict tokens: notes that labels of texts are ignored.
void look_for_labels(Workload& workload, const LabelColumn* of_validation);

inline PredictionKind token_predictions(const Workload&) {
  return PredictionKind::tokens;
}

// Called before a run is planned. Gives the model's configuration (Resolved::config) the classes that the data's
// sidecars name, unless it has its own, with the matching problem_type and architecture. Throws Error{usage} if there
// are no labels.
void resolve_classes(Workload& workload);

// The row of a document that its class is read from: the first row, or the last row whose token is not padding (as in
// transformers; the first if all are padding).
struct ClassRow {
  bool last;
  std::optional<std::uint32_t> padding = {};

  std::size_t of(std::span<const std::uint32_t> tokens) const;
};

// The documents' labels from the files.
class DocumentClasses final : public Labelling {
 public:
  // `labels`: the labels of all documents, file after file; nullopt: the data have no labels, and the documents'
  // numbers replace them. `documents_before`: for each file.
  DocumentClasses(std::optional<LabelColumn> labels, std::vector<std::uint64_t> documents_before,
                  std::vector<std::uint64_t> tokens_before, ClassRow row);

  std::uint32_t most(const Piece& piece) const override;
  LabelColumn* column() override { return labels_ ? &*labels_ : nullptr; }
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::optional<LabelColumn> labels_;
  std::vector<std::uint64_t> documents_before_, tokens_before_;
  ClassRow row_;
};

// A label for each token of the files.
class TokenClasses final : public Labelling {
 public:
  // nullopt: the data have no labels, and the numbers of the tokens that count replace them.
  explicit TokenClasses(std::optional<LabelColumn> labels) : labels_(std::move(labels)) {}

  std::uint32_t most(const Piece& piece) const override;
  LabelColumn* column() override { return labels_ ? &*labels_ : nullptr; }
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::optional<LabelColumn> labels_;
};

// Determines which tokens are selected, and what replaces them. This is part of the numerics contract and must never
// change (docs/formats.md, "Masked tokens").
class MaskedTokens final : public Labelling {
 public:
  struct Vocabulary {
    std::uint32_t mask;   // the mask token
    std::uint32_t words;  // random tokens are below it
    std::vector<bool> special;
  };
  MaskedTokens(Vocabulary vocabulary, double probability, std::uint64_t seed, std::uint64_t stream);

  std::uint32_t most(const Piece& piece) const override;
  bool exact() const override { return false; }
  std::uint32_t count(const Piece& piece) const override;
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  bool may_be_chosen(const Piece& piece, std::uint32_t row, std::uint32_t token) const;
  bool has_words(const Piece& piece) const;

  Vocabulary vocabulary_;
  std::vector<TokenRange> special_;  // the same as a few ranges
  double probability_;
  std::uint64_t key_;
};

}  // namespace strata::runtime

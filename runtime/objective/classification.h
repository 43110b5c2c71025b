#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/objective/rules.h"

namespace strata::runtime {

// A class, some classes or a number per document: the loss takes the row of its first token, of families that predict
// the next token that of its last.
extern const ObjectiveRules kSequenceClassification;
// A class per word, at its first token.
extern const ObjectiveRules kTokenClassification;

// Before a run is planned: gives the model's configuration (model.config.*) the classes that the data's sidecars name,
// unless it has some of its own, with the problem_type and architecture that go with them. Throws Error{usage} if there
// are no labels.
void settle_classes(Workload& workload);

// The row of a document that its class is read from: the first, or the last whose token is not that of padding (as
// transformers has it; the first if all are).
struct ClassRow {
  bool last;
  std::optional<std::uint32_t> padding = {};

  std::size_t of(std::span<const std::uint32_t> tokens) const;
};

// What files' labels make of documents.
class DocumentClasses final : public Labelling {
 public:
  // labels: of all documents, file after file; nullopt: their numbers stand for them, for who has none.
  // documents_before: of each file.
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
  // nullopt: the numbers of the tokens that count stand for them, for who has none.
  explicit TokenClasses(std::optional<LabelColumn> labels) : labels_(std::move(labels)) {}

  std::uint32_t most(const Piece& piece) const override;
  LabelColumn* column() override { return labels_ ? &*labels_ : nullptr; }
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::optional<LabelColumn> labels_;
};

}  // namespace strata::runtime

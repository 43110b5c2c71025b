#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/objective/rules.h"

namespace strata::runtime {

// A class, some classes or a number per document: the loss takes the row of its first token, of families that predict
// the next token that of its last.
extern const ObjectiveRules kSequenceClassification;
// A class per word, at its first token.
extern const ObjectiveRules kTokenClassification;

// Before a run is planned: gives the model's configuration the classes that the data's sidecars name, unless it has
// some of its own, with the problem_type and architecture that go with them. Throws Error{usage} if there are no
// labels.
void settle_classes(Recipe& recipe);

// Once the data are settled: Recipe::Data::scored_rows, which nothing but classification has. evaluates: the run reads
// data.validation, and not data.train.
void settle_scored_rows(Recipe& recipe, bool evaluates);

// The row of a document of `rows` rows that its class is read from.
enum class ClassRow : std::uint8_t { first, last };

// What files' labels make of documents.
class DocumentClasses final : public Labelling {
 public:
  // labels: of all documents, file after file; documents_before: of each file.
  DocumentClasses(std::vector<std::int32_t> labels, std::vector<std::uint64_t> documents_before,
                  std::vector<std::uint64_t> tokens_before, ClassRow row);

  std::uint32_t most(const Piece& piece) const override;
  bool few() const override { return true; }
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::vector<std::int32_t> labels_;
  std::vector<std::uint64_t> documents_before_, tokens_before_;
  ClassRow row_;
};

// A label for each token of the files.
class TokenClasses final : public Labelling {
 public:
  explicit TokenClasses(std::vector<std::int32_t> labels) : labels_(std::move(labels)) {}

  std::uint32_t most(const Piece& piece) const override;
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::vector<std::int32_t> labels_;
};

}  // namespace strata::runtime

#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/objective/rules.h"

namespace strata::runtime {

// Called before a run is planned. Gives the model's configuration (model.config.*) the classes that the data's sidecars
// name, unless it has its own, with the matching problem_type and architecture. Throws Error{usage} if there are no
// labels.
void settle_classes(Workload& workload);

// The row of a document from which its class is read: the first, or the last whose token is not padding (as in
// transformers; the first if all are padding).
struct ClassRow {
  bool last;
  std::optional<std::uint32_t> padding = {};

  std::size_t of(std::span<const std::uint32_t> tokens) const;
};

// The documents' labels from the files.
class DocumentClasses final : public Labelling {
 public:
  // `labels`: of all documents, file after file; nullopt: data without labels, for which the documents' numbers stand
  // in. `documents_before`: for each file.
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
  // nullopt: data without labels, for which the numbers of the tokens that count stand in.
  explicit TokenClasses(std::optional<LabelColumn> labels) : labels_(std::move(labels)) {}

  std::uint32_t most(const Piece& piece) const override;
  LabelColumn* column() override { return labels_ ? &*labels_ : nullptr; }
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  std::optional<LabelColumn> labels_;
};

}  // namespace strata::runtime

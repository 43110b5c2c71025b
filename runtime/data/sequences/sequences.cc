#include "runtime/data/sequences/sequences.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/losses/losses.h"

namespace strata::runtime {

namespace {

// Causal language modelling: a row's label is the document's next token, if that counts.
class NextToken final : public Labelling {
 public:
  std::uint32_t most(const Piece& piece) const override {
    const std::uint64_t end = std::min(piece.begin + piece.rows + 1, piece.document_end);
    if (end <= piece.begin + 1) return 0;
    if (!piece.documents) return static_cast<std::uint32_t>(end - piece.begin - 1);
    return static_cast<std::uint32_t>(piece.documents->labels(piece.begin + 1, end));
  }

  void fill(const Piece& piece, std::uint64_t, const Rows& own) const override {
    // If the piece was cut, the document's next token follows its last row.
    std::uint32_t next = 0;
    const bool continues = piece.begin + piece.rows < piece.document_end;
    if (continues) piece.file.read(piece.begin + piece.rows, {&next, 1});
    for (std::uint32_t i = 0; i < piece.rows; ++i) {
      const bool has_next = i + 1 < piece.rows || continues;
      const std::uint32_t label = i + 1 < piece.rows ? own.tokens[i + 1] : next;
      own.labels[i] =
          has_next && piece.counts(piece.begin + i + 1) ? static_cast<std::int32_t>(label) : device::kIgnoredLabel;
    }
  }
};

}  // namespace

Sequences::Sequences(std::vector<TokenFile> files, std::shared_ptr<Labelling> labelling)
    : files_(std::move(files)), labelling_(labelling ? std::move(labelling) : std::make_shared<NextToken>()) {}

std::span<std::uint32_t> write_class_sets(const LabelColumn* column, std::span<const std::int32_t> labels,
                                          std::span<std::uint32_t> to) {
  const ClassSets* const sets = column == nullptr ? nullptr : column->sets();
  if (sets == nullptr) return to;
  const std::size_t words = device::class_set_words(device::ClassTarget::many, sets->classes());
  for (const std::int32_t label : labels) {
    if (label == device::kIgnoredLabel) continue;
    STRATA_CHECK_LE(words, to.size());
    sets->write(label, to.first(words));
    to = to.subspan(words);
  }
  return to;
}

void fill_without_document(const Rows& rows) {
  std::ranges::fill(rows.tokens, 0u);
  std::ranges::fill(rows.labels, device::kIgnoredLabel);
  std::ranges::fill(rows.positions, 0u);
  std::ranges::fill(rows.documents, device::RowRange{});
  std::ranges::fill(rows.types, 0u);
}

void take_labelled(const Rows& rows) {
  if (rows.loss_rows.empty()) {
    STRATA_CHECK(rows.class_sets.empty());  // like labels, sets are adjacent only after this selection
    return;
  }
  std::size_t taken = 0;
  for (std::size_t row = 0; row < rows.labels.size(); ++row) {
    const std::int32_t label = rows.labels[row];
    if (label == device::kIgnoredLabel) continue;
    STRATA_CHECK_LT(taken, rows.loss_rows.size());
    rows.loss_rows[taken] = static_cast<std::uint32_t>(row);
    rows.labels[taken++] = label;
  }
  std::ranges::fill(rows.loss_rows.subspan(taken), 0u);
  std::ranges::fill(rows.labels.subspan(taken), device::kIgnoredLabel);
}

}  // namespace strata::runtime

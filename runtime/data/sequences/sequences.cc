#include "runtime/data/sequences/sequences.h"

#include <algorithm>

#include "device/ops/losses/cross_entropy.h"

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

}  // namespace strata::runtime

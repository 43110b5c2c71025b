#pragma once
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"

namespace strata::runtime {

// Token files cut into sequences of seq_len rows, one behind the other, whatever lies at the cuts: a sequence is one
// document. The file's last token is in none: it is the label of the one before.
class StreamSequences final : public Sequences {
 public:
  // The rows behind a file's last whole sequence are left out, or a sequence whose other rows are token 0 without a
  // label that counts.
  enum class Rest : std::uint8_t { left_out, shorter };
  // most: of the sequences that are read; no label behind them is counted.
  StreamSequences(std::vector<TokenFile> files, std::uint64_t seq_len, Rest rest, std::shared_ptr<Labelling> labelling,
                  std::uint64_t most = kAllSequences);

  std::size_t index_bytes() const override;
  void keep_in(std::pmr::memory_resource* memory) override;
  std::uint64_t size() const override { return first_sequence_.back(); }
  std::uint64_t labels(std::uint64_t sequence) const override;
  std::uint64_t most_labels() const override;
  void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const override;

 private:
  Piece piece_of(std::uint64_t sequence) const;

  std::vector<std::uint64_t> first_sequence_, first_token_;  // of each file, and the total
  std::uint64_t seq_len_, most_;
  std::optional<std::pmr::vector<std::uint32_t>> labels_;  // of each sequence, if only its tokens say how many
};

// As training takes a stream: whole sequences. Throws Error{usage} where there is none. Labels: the next token, unless
// said otherwise.
std::unique_ptr<Sequences> whole_sequences(std::vector<TokenFile> files, std::int64_t seq_len,
                                           std::shared_ptr<Labelling> labelling = {});
// As an evaluation does: every label once, of the first `most` sequences. Throws Error{usage} where there is none.
std::unique_ptr<Sequences> every_label(std::vector<TokenFile> files, std::int64_t seq_len,
                                       std::shared_ptr<Labelling> labelling = {}, std::uint64_t most = kAllSequences);

}  // namespace strata::runtime

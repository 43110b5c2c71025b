#pragma once
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"

namespace strata::runtime {

// Token files cut into consecutive sequences of seq_len rows, wherever the cuts fall: a sequence counts as one
// document. The file's last token is in no sequence: it is the label of the token before it.
class StreamSequences final : public Sequences {
 public:
  // The rows after a file's last full sequence are either left out, or form a sequence that is filled up with token 0
  // and labels that do not count.
  enum class Rest : std::uint8_t { left_out, shorter };
  // `most`: the number of sequences that are read; labels after them are not counted.
  StreamSequences(std::vector<TokenFile> files, std::uint64_t seq_len, Rest rest, std::shared_ptr<Labelling> labelling,
                  std::uint64_t most = kAllSequences);

  std::size_t index_bytes() const override;
  void keep_in(std::pmr::memory_resource* memory) override;
  std::uint64_t size() const override { return first_sequence_.back(); }
  std::uint64_t labels(std::uint64_t sequence) const override;
  std::uint64_t max_labels() const override;
  void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const override;

 private:
  Piece piece_of(std::uint64_t sequence) const;

  std::vector<std::uint64_t> first_sequence_, first_token_;  // one per file, and the total
  std::uint64_t seq_len_, most_;
  std::optional<std::pmr::vector<std::uint32_t>> labels_;  // one per sequence, if counting takes the tokens
};

// A stream for training: full sequences. Throws Error{usage} if there is none. The labels are the next tokens, unless
// another labelling is given.
std::unique_ptr<Sequences> full_sequences(std::vector<TokenFile> files, std::int64_t seq_len,
                                          std::shared_ptr<Labelling> labelling = {});
// A stream for evaluation: every label once, for the first `most` sequences. Throws Error{usage} if there is none.
std::unique_ptr<Sequences> every_label(std::vector<TokenFile> files, std::int64_t seq_len,
                                       std::shared_ptr<Labelling> labelling = {}, std::uint64_t most = kAllSequences);

// Sequences as an evaluation reads them: each once, in order. After the last one, the micro-batch is filled with token
// 0 and a label that does not count.
class DisjointSequences {
 public:
  // `most`: the number of sequences used. keep_in() must have been called for the sequences.
  DisjointSequences(std::unique_ptr<Sequences> sequences, std::int64_t seq_len, std::int64_t micro_batch_size,
                    std::uint64_t most = kAllSequences);

  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t micro_batches() const { return (sequences() + micro_batch_size_ - 1) / micro_batch_size_; }
  // The number of labels that count, in all sequences.
  std::uint64_t labels() const { return labels_; }

  // Sequences [k*B, (k+1)*B), B = micro_batch_size; columns are [B * seq_len] each.
  void fill(std::uint64_t micro_batch, const Rows& rows) const;

 private:
  std::unique_ptr<Sequences> all_;
  std::uint64_t seq_len_, micro_batch_size_, sequences_ = 0, labels_ = 0;
};

}  // namespace strata::runtime

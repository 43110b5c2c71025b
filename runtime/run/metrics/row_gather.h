#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace strata::runtime {

// A rank's buffer for a collective call, and the call itself: `gather` returns the buffers of all ranks, in rank order.
struct Exchange {
  std::span<std::byte> own;
  std::function<std::span<const std::byte>()> gather;
};

// Collects the rows of all ranks in the order of micro-batches. Each rank has one micro-batch per round. It sends few
// large messages, whose number and size do not depend on the rows.
class RowGather {
 public:
  // words: per row, its label and its predictions. label_words: of the label. of_round: the most rows of a round.
  // rounds: how many are sent together. The exchange must be large enough (ScoreMemory::chunk_bytes) and outlive it.
  RowGather(Exchange exchange, std::size_t words, std::size_t label_words, std::size_t of_round, std::size_t rounds);

  // Receives each row of every rank, in order.
  using Take = std::function<void(std::span<const std::uint32_t> label, std::span<const float> predictions)>;
  // Adds a row of this rank's round; `predictions` has words - label_words floats.
  void add(std::span<const std::uint32_t> label, std::span<const float> predictions);
  // Ends a round. If there is no room for another one, sends what was not sent yet, and `take` receives the rows.
  // Collective.
  void end_round(const Take& take);
  // Does the same for the remaining rounds, if there are any (on all ranks alike). Collective.
  void flush(const Take& take);
  // Forgets rows that were added and not sent.
  void clear();

 private:
  // The byte offset of a row in a chunk.
  std::size_t place_of(std::size_t row) const;

  Exchange exchange_;
  std::size_t words_, label_words_, of_round_, rounds_;
  std::size_t rows_ = 0, round_ = 0, rows_of_round_ = 0;  // in the chunk so far
};

}  // namespace strata::runtime

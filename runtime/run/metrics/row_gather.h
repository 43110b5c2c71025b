#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace strata::runtime {

// A rank's buffer for a collective call, and the call itself: `gather` returns the buffers of all ranks, in rank order.
struct RowExchange {
  std::span<std::byte> own;
  std::function<std::span<const std::byte>()> gather;
};

// Collects the rows of all ranks in the order of micro-batches. Each rank has one micro-batch per round. It sends few
// large messages, whose number and size do not depend on the rows.
class RowGather {
 public:
  // words: the words of a row, for its label and its predictions. label_words: the words of the label. rows_per_round:
  // the maximum number of rows in a round. rounds: the number of rounds that are sent together. The exchange must be
  // large enough (ScoreMemory::chunk_bytes) and outlive it.
  RowGather(RowExchange exchange, std::size_t words, std::size_t label_words, std::size_t rows_per_round,
            std::size_t rounds);

  // Receives each row of every rank, in order.
  using RowHandler = std::function<void(std::span<const std::uint32_t> label, std::span<const float> predictions)>;
  // Adds a row of this rank's round; `predictions` has words - label_words floats.
  void add(std::span<const std::uint32_t> label, std::span<const float> predictions);
  // Ends a round. If there is no room for another round, sends all pending rows, which `take` receives. Collective.
  void end_round(const RowHandler& take);
  // Sends the remaining rounds in the same way, if there are any (the same on all ranks). Collective.
  void flush(const RowHandler& take);
  // Discards rows that were added but not sent.
  void clear();

 private:
  // The byte offset of a row in a chunk.
  std::size_t place_of(std::size_t row) const;

  RowExchange exchange_;
  std::size_t words_, label_words_, rows_per_round_, rounds_;
  std::size_t rows_ = 0, round_ = 0, round_rows_ = 0;  // rows, rounds and rows of this round in the chunk so far
};

}  // namespace strata::runtime

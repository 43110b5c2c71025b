#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace strata::runtime {

// What a rank fills, and what comes of it: every rank's, in rank order, of a collective call.
struct Exchange {
  std::span<std::byte> own;
  std::function<std::span<const std::byte>()> gather;
};

// Brings rows of all ranks together in the order of micro-batches, of which each rank has one a round: in few large
// messages, whose number and size do not depend on the rows.
class RowGather {
 public:
  // words: of a row, its label and what was said of it. of_round: rows of a round at most. rounds: that are sent at
  // once. The exchange is large enough (ScoreMemory::chunk_bytes) and outlives it.
  RowGather(Exchange exchange, std::size_t words, std::size_t of_round, std::size_t rounds);

  // Told of each row of every rank, in order.
  using Take = std::function<void(std::int32_t label, std::span<const float> said)>;
  // A row of this rank's round; `said` has words - 1 floats.
  void add(std::int32_t label, std::span<const float> said);
  // Ends a round; if it is the last that there is room for, all that is not sent yet goes to `take`. Collective.
  void end_round(const Take& take);
  // The same of rounds that are left, if there are any: on all ranks alike. Collective.
  void flush(const Take& take);
  // Forgets what was added and not sent.
  void clear();

 private:
  // Of a row's words in a chunk, in bytes.
  std::size_t place_of(std::size_t row) const;

  Exchange exchange_;
  std::size_t words_, of_round_, rounds_;
  std::size_t rows_ = 0, round_ = 0, rows_of_round_ = 0;  // in the chunk, this far
};

}  // namespace strata::runtime

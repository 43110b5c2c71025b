#include "runtime/run/metrics/row_gather.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::runtime {

// A chunk holds the number of rows of each round, then the rows, without gaps.
RowGather::RowGather(RowExchange exchange, std::size_t words, std::size_t label_words, std::size_t rows_per_round,
                     std::size_t rounds)
    : exchange_(std::move(exchange)),
      words_(words),
      label_words_(label_words),
      rows_per_round_(rows_per_round),
      rounds_(rounds) {
  STRATA_CHECK_LE(place_of(rounds_ * rows_per_round_), exchange_.own.size());
}

std::size_t RowGather::place_of(std::size_t row) const {
  return rounds_ * sizeof(std::uint32_t) + row * words_ * sizeof(float);
}

void RowGather::add(std::span<const std::uint32_t> label, std::span<const float> predictions) {
  STRATA_CHECK_EQ(label.size(), label_words_);
  STRATA_CHECK_EQ(label.size() + predictions.size(), words_);
  STRATA_CHECK_LT(round_rows_, rows_per_round_);
  std::byte* const at = exchange_.own.data() + place_of(rows_);
  std::memcpy(at, label.data(), label.size_bytes());
  std::memcpy(at + label.size_bytes(), predictions.data(), predictions.size_bytes());
  ++rows_;
  ++round_rows_;
}

void RowGather::end_round(const RowHandler& take) {
  const auto count = static_cast<std::uint32_t>(std::exchange(round_rows_, 0));
  std::memcpy(exchange_.own.data() + round_ * sizeof count, &count, sizeof count);
  if (++round_ == rounds_) flush(take);
}

void RowGather::flush(const RowHandler& take) {
  if (round_ == 0) return;
  const std::span<const std::byte> all = exchange_.gather();
  const std::size_t bytes = exchange_.own.size(), ranks = all.size() / bytes;
  std::vector<std::size_t> next(ranks);  // the next row, by rank
  std::vector<std::uint32_t> label(label_words_);
  std::vector<float> predictions(words_ - label_words_);
  for (std::size_t round = 0; round < round_; ++round)
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::byte* const chunk = all.data() + rank * bytes;
      std::uint32_t count = 0;
      std::memcpy(&count, chunk + round * sizeof count, sizeof count);
      STRATA_CHECK_LE(count, rows_per_round_);
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::byte* const at = chunk + place_of(next[rank]++);
        std::memcpy(label.data(), at, label_words_ * sizeof label[0]);
        std::memcpy(predictions.data(), at + label_words_ * sizeof label[0],
                    predictions.size() * sizeof predictions[0]);
        take(label, predictions);
      }
    }
  clear();
}

void RowGather::clear() {
  rows_ = round_ = round_rows_ = 0;
}

}  // namespace strata::runtime

#include "runtime/data/batches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "runtime/data/scramble.h"

namespace strata::runtime {
namespace {

// Gives each source its own seed, so that sources with the same number of sequences are shuffled differently.
constexpr std::uint64_t kSeedOfSource = 0x9e3779b97f4a7c15;

std::vector<double> weights_of(std::span<const Source> sources) {
  std::vector<double> out;
  for (const Source& source : sources) out.push_back(source.weight);
  return out;
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) : size_(size) {
  STRATA_CHECK_LT(std::uint64_t{0}, size);
  half_bits_ = std::max(1u, (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2);
  std::uint64_t key = scramble(scramble(seed) ^ epoch);
  for (std::uint64_t& round_key : keys_) round_key = key = scramble(key);
}

std::uint64_t Permutation::operator[](std::uint64_t i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {  // at most 4 rounds on average: the domain is below 4 * size
    std::uint64_t left = i >> half_bits_, right = i & mask;
    for (const std::uint64_t key : keys_) left = std::exchange(right, left ^ (scramble(right ^ key) & mask));
    i = left << half_bits_ | right;
  } while (i >= size_);
  return i;
}

Batches::Batches(std::vector<Source> sources, std::int64_t seq_len, std::int64_t micro_batch_size, DataOrder order,
                 std::uint64_t seed)
    : sources_(std::move(sources)),
      mix_(weights_of(sources_)),
      seq_len_(static_cast<std::uint64_t>(seq_len)),
      micro_batch_size_(static_cast<std::uint64_t>(micro_batch_size)),
      seed_(seed),
      order_(order) {
  for (const Source& source : sources_) STRATA_CHECK_LT(std::uint64_t{0}, source.sequences->size());
}

std::uint64_t Batches::sequences() const {
  std::uint64_t sum = 0;
  for (const Source& source : sources_) sum += source.sequences->size();
  return sum;
}

Batches::Place Batches::sequence_at(std::uint64_t position) const {
  const auto [source, index] = mix_.at(position);
  const std::uint64_t n = sources_[source].sequences->size();
  if (order_ == DataOrder::sequential) return {source, index % n, index / n};
  return {source, Permutation(n, seed_ + source * kSeedOfSource, index / n)[index % n], index / n};
}

std::uint64_t Batches::taken(std::size_t source, std::uint64_t micro_batches) const {
  return mix_.count(source, micro_batches * micro_batch_size_);
}

void Batches::fill(std::uint64_t micro_batch, const Rows& rows) const {
  fill_micro_batch(rows, micro_batch_size_, seq_len_, [&](std::uint64_t b, const Rows& own) {
    const auto [source, sequence, epoch] = sequence_at(micro_batch * micro_batch_size_ + b);
    sources_[source].sequences->fill(sequence, epoch, own);
    return sources_[source].sequences->column();
  });
}

std::uint64_t Batches::labels(std::uint64_t micro_batch) const {
  std::uint64_t sum = 0;
  for (std::uint64_t b = 0; b < micro_batch_size_; ++b) {
    const auto [source, sequence, epoch] = sequence_at(micro_batch * micro_batch_size_ + b);
    sum += sources_[source].sequences->labels(sequence);
  }
  return sum;
}

// Shares are integers: the weights times 2^31, divided by their sum. From here on nothing is rounded.
Mix::Mix(std::span<const double> weights) {
  STRATA_CHECK(!weights.empty());
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights)
    share_.push_back(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(weight / sum * 0x1p31))));
  rest_ = share_;
  std::partial_sum(rest_.rbegin(), rest_.rend(), rest_.rbegin());
}

// n * share / rest, rounded to nearest, in parts: the product itself may have more than 64 bits.
std::uint64_t Mix::taken(std::size_t source, std::uint64_t n) const {
  const std::uint64_t share = share_[source], rest = rest_[source];
  return n / rest * share + (n % rest * share + rest / 2) / rest;
}

Mix::Place Mix::at(std::uint64_t position) const {
  std::uint64_t left = position;
  for (std::size_t source = 0;; ++source) {
    const std::uint64_t before = taken(source, left);
    if (source + 1 == share_.size() || taken(source, left + 1) > before) return {source, before};
    left -= before;
  }
}

std::uint64_t Mix::count(std::size_t source, std::uint64_t positions) const {
  for (std::size_t earlier = 0; earlier < source; ++earlier) positions -= taken(earlier, positions);
  return taken(source, positions);
}

}  // namespace strata::runtime

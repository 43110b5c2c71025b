#include "runtime/data/batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

// The finalizer of SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit of x.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) : size_(size) {
  STRATA_CHECK_LT(std::uint64_t{0}, size);
  half_bits_ = std::max(1u, (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2);
  std::uint64_t key = mix(mix(seed) ^ epoch);
  for (std::uint64_t& round_key : keys_) round_key = key = mix(key);
}

std::uint64_t Permutation::operator[](std::uint64_t i) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {  // at most 4 rounds of this on average: the domain is below 4 * size
    std::uint64_t left = i >> half_bits_, right = i & mask;
    for (const std::uint64_t key : keys_) left = std::exchange(right, left ^ (mix(right ^ key) & mask));
    i = left << half_bits_ | right;
  } while (i >= size_);
  return i;
}

Batches::Batches(std::vector<TokenFile> files, std::int64_t seq_len, std::int64_t micro_batch_size, DataOrder order,
                 std::uint64_t seed)
    : files_(std::move(files)),
      first_sequence_{0},
      seq_len_(static_cast<std::uint64_t>(seq_len)),
      micro_batch_size_(static_cast<std::uint64_t>(micro_batch_size)),
      seed_(seed),
      order_(order) {
  std::uint64_t most = 0;
  for (const TokenFile& file : files_) {
    // The last label of a sequence is the first token after it.
    first_sequence_.push_back(first_sequence_.back() + (file.count() - 1) / seq_len_);
    most = std::max(most, file.count());
  }
  if (sequences() == 0) {
    fail(Exit::usage, "data.seq_len = {} needs a token file of at least {} tokens; the largest of {} has {}", seq_len,
         seq_len_ + 1, files_.size(), most);
  }
}

std::uint64_t Batches::sequence_at(std::uint64_t position) const {
  const std::uint64_t n = sequences();
  if (order_ == DataOrder::sequential) return position % n;
  return Permutation(n, seed_, position / n)[position % n];
}

void Batches::fill_sequence(std::uint64_t sequence, std::span<std::uint32_t> tokens,
                            std::span<std::int32_t> labels) const {
  const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), sequence);
  const auto index = static_cast<std::size_t>(after - first_sequence_.begin()) - 1;
  const TokenFile& file = files_[index];
  const std::uint64_t begin = (sequence - first_sequence_[index]) * seq_len_;
  file.read(begin, tokens);
  std::uint32_t next = 0;
  file.read(begin + seq_len_, {&next, 1});
  for (std::size_t i = 0; i + 1 < seq_len_; ++i) labels[i] = static_cast<std::int32_t>(tokens[i + 1]);
  labels[seq_len_ - 1] = static_cast<std::int32_t>(next);
}

void Batches::fill(std::uint64_t micro_batch, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels,
                   std::span<std::uint32_t> positions, std::span<device::RowRange> documents) const {
  const std::uint64_t elements = micro_batch_size_ * seq_len_;
  STRATA_CHECK_EQ(tokens.size(), elements);
  STRATA_CHECK_EQ(labels.size(), elements);
  STRATA_CHECK_EQ(positions.size(), elements);
  STRATA_CHECK_EQ(documents.size(), elements);
  std::fill(documents.begin(), documents.end(), device::RowRange{0, static_cast<std::uint32_t>(seq_len_)});
  for (std::uint64_t b = 0; b < micro_batch_size_; ++b) {
    const std::uint64_t sequence = sequence_at(micro_batch * micro_batch_size_ + b);
    fill_sequence(sequence, tokens.subspan(b * seq_len_, seq_len_), labels.subspan(b * seq_len_, seq_len_));
    for (std::uint64_t i = 0; i < seq_len_; ++i) positions[b * seq_len_ + i] = static_cast<std::uint32_t>(i);
  }
}

std::uint64_t Batches::labels(std::uint64_t /*micro_batch*/) const {
  return micro_batch_size_ * seq_len_;
}

}  // namespace strata::runtime

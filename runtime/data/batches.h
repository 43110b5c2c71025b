#pragma once
// runtime/data/ provides the data of a step: token files (files/tokens.h), their sequences in the order of the run
// (this header), and an evaluation's sequences (sequences/stream_sequences.h). Data are a pure function of files, seed
// and position, and so the same for any number of ranks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// A permutation of [0, size) that is computed, not stored: eight Feistel rounds keyed by seed and epoch over the next
// power of four, repeated until the result is below size. Part of the numerics contract: it must never change.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t operator[](std::uint64_t i) const;

 private:
  std::uint64_t size_;
  unsigned half_bits_;
  std::array<std::uint64_t, 8> keys_;
};

// Decides which of several sources provides the sequence at a position. The rule is a closed form, so that a run can
// start anywhere (docs/formats.md, "Sources"). Among the first p positions each source has its share of p, to within
// one half plus one for each source before it. Part of the numerics contract: it must never change.
class Mix {
 public:
  // `weights`: each above 0.
  explicit Mix(std::span<const double> weights);

  struct Place {
    std::size_t source;
    std::uint64_t index;  // counts the source's own positions
  };
  Place at(std::uint64_t position) const;
  // The number of the source's positions among the first `positions`.
  std::uint64_t count(std::size_t source, std::uint64_t positions) const;

 private:
  // The number of positions that the source takes among the first n that are left for it and the later sources.
  std::uint64_t taken(std::size_t source, std::uint64_t n) const;

  std::vector<std::uint64_t> share_, rest_;  // per source: its share, and its share plus all later ones
};

// Sequences to train on, and how often they are sampled relative to other sources.
struct Source {
  std::unique_ptr<Sequences> sequences;
  double weight = 1;
};

// Determines which sequences each micro-batch of the run takes (docs/guide.md, "What a step means"). Reading allocates
// nothing.
class Batches {
 public:
  // Each source has at least one sequence.
  Batches(std::vector<Source> sources, std::int64_t seq_len, std::int64_t micro_batch_size, DataOrder order,
          std::uint64_t seed);

  std::span<const Source> sources() const { return sources_; }
  // The number of sequences in all sources.
  std::uint64_t sequences() const;
  // How often a run has passed over all sequences before micro-batch k.
  double epochs_before(std::uint64_t micro_batch) const {
    return static_cast<double>(micro_batch * micro_batch_size_) / static_cast<double>(sequences());
  }
  // The sequence at `position` of the run (micro-batch k has positions k*B .. k*B+B-1).
  struct Place {
    std::size_t source;
    std::uint64_t sequence;
    std::uint64_t epoch = 0;  // the source's epoch
  };
  Place sequence_at(std::uint64_t position) const;
  // The number of sequences from a source in the first `micro_batches` of the run.
  std::uint64_t taken(std::size_t source, std::uint64_t micro_batches) const;

  // Fills micro-batch k of the run: the columns are [micro_batch_size * seq_len] each.
  void fill(std::uint64_t micro_batch, const Rows& rows) const;
  // The number of labels that count in micro-batch k, before it is filled.
  std::uint64_t labels(std::uint64_t micro_batch) const;

 private:
  std::vector<Source> sources_;
  Mix mix_;
  std::uint64_t seq_len_, micro_batch_size_, seed_;
  DataOrder order_;
};

}  // namespace strata::runtime

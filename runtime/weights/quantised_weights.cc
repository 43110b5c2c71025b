#include "runtime/weights/quantised_weights.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "comm/agreement.h"
#include "comm/exchange_values.h"
#include "device/numeric/exact_sum.h"
#include "runtime/weights/floats.h"

namespace strata::runtime {
namespace {

using device::ExactSum, device::kNf4Block, device::kScaleBlock, device::StorageFormat;

class QuantisedWeights final : public ForwardedWeights {
 public:
  QuantisedWeights(std::unique_ptr<WeightSource> weights, const models::Model& model)
      : ForwardedWeights(std::move(weights)), model_(model) {}

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!in_pool(unit, parameter)) return weights_.read(unit, parameter, begin, out);
    read_blocks(*this, model_.quantised, unit, parameter, begin, out);
  }
  // A run has a quantised output layer dequantised; its blocks are those of the source.
  bool quantised(std::size_t unit, std::size_t parameter, StorageFormat format) const override {
    return in_pool(unit, parameter) ? format == model_.quantised : weights_.quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    if (!in_pool(unit, parameter) || weights_.quantised(unit, parameter, model_.quantised))
      return weights_.read_block(unit, parameter, begin, block);
    std::vector<float> values(std::min(kNf4Block, of(unit, parameter).size() - begin));
    weights_.read(unit, parameter, begin, values);
    write_nf4_block(model_.quantised, values, offset(unit, parameter), block);
  }

 private:
  const models::Parameter& of(std::size_t unit, std::size_t parameter) const {
    return model_.units[unit]->parameters()[parameter];
  }
  bool in_pool(std::size_t unit, std::size_t parameter) const {
    return of(unit, parameter).pool() == models::PoolKind::quantised;
  }
  // The offset that scale_offsets() computes.
  float offset(std::size_t unit, std::size_t parameter) const {
    if (model_.quantised != StorageFormat::nf4) return 0;
    const std::scoped_lock lock(mutex_);
    const auto [found, is_new] = offsets_.try_emplace({unit, parameter}, 0.0f);
    if (!is_new) return found->second;
    device::ExactSum sum;
    std::size_t count = 0;
    std::vector<float> values;
    for (std::size_t at = 0, size = of(unit, parameter).size(); at < size; at += kNf4Block) {
      values.resize(std::min(kNf4Block, size - at));
      weights_.read(unit, parameter, at, values);
      for (std::size_t i = 0; i < values.size(); i += kScaleBlock, ++count)
        sum.add(nf4_scale(std::span(values).subspan(i, std::min(kScaleBlock, values.size() - i))));
    }
    return found->second = static_cast<float>(sum.round() / static_cast<double>(count));
  }

  const models::Model& model_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::size_t, std::size_t>, float> offsets_;
};

constexpr std::size_t kQuantisedAtOnce = 16 * kQuantisedAlignment;  // elements per read

// Elements of the whole matrix.
std::size_t size_of(const TensorRange& range) {
  return range.box ? range.box->of_tensor() : range.end - range.begin;
}
// The first of the ranges that are pieces of the same matrix.
std::size_t first_of(const Pool& pool, std::size_t range) {
  while (range > 0 && pool.ranges[range - 1].parameter == pool.ranges[range].parameter) --range;
  return range;
}

// A range of a matrix whose scales this rank adds up.
struct ScaleRange {
  std::size_t unit, matrix, begin, end;  // elements of the matrix
};

// Sums of the scales of all matrices, in the order of units and ranges: this rank's part, or after add_all() the sums
// over all ranks.
class ScaleSums {
 public:
  ScaleSums(const StepPlan& plan, const WeightSource& source) : plan_(plan), source_(source) {
    for (const UnitLayout& unit : plan.layout.units) {
      first_.push_back(sums_.size());
      sums_.resize(sums_.size() + unit.quantised.ranges.size());
    }
  }

  void read(const Coordinates* rank, int threads) {
    std::vector<ScaleRange> scale_ranges;
    for (std::size_t unit = 0; unit < plan_.layout.units.size(); ++unit) {
      if (rank && !plan_.own.has(static_cast<int>(unit))) continue;  // the ranks of its stage add it
      const Pool& pool = plan_.layout.units[unit].quantised;
      for (std::size_t r = 0; r < pool.ranges.size(); ++r) {
        const TensorRange& range = pool.ranges[r];
        if (source_.quantised(unit, range.parameter, plan_.layout.quantised_as)) continue;
        if (range.is_cut()) {
          if (first_of(pool, r) == r) add_whole(scale_ranges, unit, r, rank);
          continue;
        }
        if (rank && rank->tensor > 0) continue;  // the first of the ranks that share each layer adds what all have
        const models::ElementRange whole{range.begin, range.end};
        const auto [begin, end] = rank ? pool.shards.piece_of(whole, *rank) : whole;
        for (std::size_t at = begin; at < end; at += kQuantisedAtOnce)
          scale_ranges.push_back({unit, r, at - range.begin, std::min(end, at + kQuantisedAtOnce) - range.begin});
      }
    }
    const auto parameter = [&](const ScaleRange& s) {
      return plan_.layout.units[s.unit].quantised.ranges[s.matrix].parameter;
    };
    const auto prefetch = [&](std::size_t i) {
      const ScaleRange& s = scale_ranges[i];
      source_.prefetch(s.unit, parameter(s), s.begin, s.end - s.begin);
    };
    std::mutex mutex;
    parallel_reads(scale_ranges.size(), threads, prefetch, [&](std::size_t i) {
      const ScaleRange& s = scale_ranges[i];
      std::vector<float> values(s.end - s.begin);
      source_.read(s.unit, parameter(s), s.begin, values);
      ExactSum sum;
      for (std::size_t at = 0; at < values.size(); at += kScaleBlock)
        sum.add(nf4_scale(std::span(values).subspan(at, std::min(kScaleBlock, values.size() - at))));
      const std::lock_guard lock(mutex);
      sums_[first_[s.unit] + s.matrix].merge(sum);
    });
  }
  // Adds this rank's part of a matrix that is cut into virtual shards: pieces do not hold the whole matrix's blocks.
  void add_whole(std::vector<ScaleRange>& scale_ranges, std::size_t unit, std::size_t range,
                 const Coordinates* rank) const {
    const Mesh& mesh = plan_.mesh();
    const std::size_t size = size_of(plan_.layout.units[unit].quantised.ranges[range]);
    const auto ranks = rank ? static_cast<std::size_t>(mesh.ranks_per_stage()) : 1;
    const auto own = rank ? static_cast<std::size_t>(mesh.place_in_stage(*rank)) : 0;
    for (std::size_t at = own * kQuantisedAtOnce; at < size; at += ranks * kQuantisedAtOnce)
      scale_ranges.push_back({unit, range, at, std::min(size, at + kQuantisedAtOnce)});
  }
  void add_all(comm::World& world) {
    const std::vector<ExactSum> all = comm::exchange_values<ExactSum>(world, sums_);
    std::ranges::fill(sums_, ExactSum{});
    for (std::size_t i = 0; i < all.size(); ++i) sums_[i % sums_.size()].merge(all[i]);
  }
  ScaleOffsets means() const {
    ScaleOffsets out;
    for (std::size_t unit = 0; unit < plan_.layout.units.size(); ++unit) {
      auto& offsets = out.emplace_back();
      const Pool& pool = plan_.layout.units[unit].quantised;
      for (std::size_t r = 0; r < pool.ranges.size(); ++r) {
        const std::size_t scales = (size_of(pool.ranges[r]) + kScaleBlock - 1) / kScaleBlock;
        offsets.push_back(
            static_cast<float>(sums_[first_[unit] + first_of(pool, r)].round() / static_cast<double>(scales)));
      }
    }
    return out;
  }
  // True if any scales have to be added.
  bool any() const { return plan_.layout.quantised_as == device::StorageFormat::nf4 && !sums_.empty(); }

 private:
  const StepPlan& plan_;
  const WeightSource& source_;
  std::vector<std::size_t> first_;  // by unit
  std::vector<ExactSum> sums_;
};

// The blocks of a whole matrix, with scales in fp32. A rank stores the elements that its pieces have.
class PlainBlocks {
 public:
  PlainBlocks(const WeightSource& source, std::size_t unit, const TensorRange& range, device::StorageFormat as,
              float offset)
      : source_(source),
        unit_(unit),
        parameter_(range.parameter),
        size_(size_of(range)),
        as_(as),
        offset_(offset),
        block_(stored_bytes(as, device::kNf4Block)),
        plain_(stored_bytes(device::StorageFormat::nf4_plain, device::kNf4Block)) {}

  // The block that begins at an element of the matrix. The last one is kept.
  std::span<const std::byte> at(std::size_t begin) {
    if (begin_ == begin) return plain_;
    begin_ = begin;
    if (source_.quantised(unit_, parameter_, as_)) {
      source_.read_block(unit_, parameter_, begin, block_);
    } else {
      values_.resize(std::min(device::kNf4Block, size_ - begin));
      source_.read(unit_, parameter_, begin, values_);
      write_nf4_block(as_, values_, offset_, block_);
    }
    with_plain_scales(as_, block_, plain_);
    return plain_;
  }

 private:
  const WeightSource& source_;
  const std::size_t unit_, parameter_, size_;
  const device::StorageFormat as_;
  const float offset_;
  std::vector<std::byte> block_, plain_;
  std::vector<float> values_;
  std::optional<std::size_t> begin_;
};

// Writes elements [from, to) of a range that is cut into virtual shards; `stored` begins at element `first` of the
// pool.
void quantise_piece(PlainBlocks& whole, const TensorRange& range, std::size_t from, std::size_t to, std::size_t first,
                    std::span<std::byte> stored) {
  constexpr std::size_t kBlock = device::kNf4Block;
  const std::size_t block_bytes = stored_bytes(device::StorageFormat::nf4_plain, kBlock);
  range.piece.for_contiguous(
      from - range.begin, to - range.begin, [&](std::size_t at, std::size_t full_index, std::size_t count) {
        for (std::size_t i = 0; i < count; i += kScaleBlock) {
          const std::size_t source = full_index + i, target = range.begin + at + i - first;
          STRATA_CHECK(source % kScaleBlock == 0 && target % kScaleBlock == 0);
          copy_scale_block(whole.at(source / kBlock * kBlock), source % kBlock / kScaleBlock,
                           stored.subspan(target / kBlock * block_bytes, block_bytes), target % kBlock / kScaleBlock);
        }
      });
}

}  // namespace

std::unique_ptr<WeightSource> quantised_weights(std::unique_ptr<WeightSource> weights, const models::Model& model) {
  return std::make_unique<QuantisedWeights>(std::move(weights), model);
}

ScaleOffsets scale_offsets(const StepPlan& plan, const WeightSource& source, int threads, comm::World& world) {
  ScaleSums sums(plan, source);
  if (!sums.any()) return sums.means();
  if (!plan.sharded_parameters()) {  // each rank reads everything; a comparison of what ranks read follows
    comm::agree(world, [&] { sums.read(nullptr, threads); });
    return sums.means();
  }
  const Coordinates rank = plan.mesh().at(world.rank());
  comm::agree(world, [&] { sums.read(&rank, threads); });
  sums.add_all(world);
  return sums.means();
}

void quantise_weights(Executor& executor, const StepPlan& plan, const WeightSource& source,
                      const std::vector<float>& offsets, std::size_t unit, const models::ElementRange& elements,
                      const LoadOptions& options) {
  constexpr std::size_t kBlock = device::kNf4Block;
  const Pool& pool = plan.layout.units[unit].quantised;
  const device::StorageFormat format = plan.layout.quantised;
  const std::size_t block_bytes = stored_bytes(format, kBlock);
  std::vector<std::byte> stored(stored_bytes(format, elements.size()));  // zeros after the last matrix
  std::vector<float> values;
  for (std::size_t r = 0; r < pool.ranges.size(); ++r) {
    const TensorRange& range = pool.ranges[r];
    const std::size_t from = std::max(range.begin, elements.begin), to = std::min(range.end, elements.end);
    if (from >= to) continue;
    if (range.is_cut()) {  // hashed as a whole matrix, elsewhere
      PlainBlocks whole(source, unit, range, plan.layout.quantised_as, offsets[r]);
      quantise_piece(whole, range, from, to, elements.begin, stored);
      continue;
    }
    STRATA_CHECK(format == plan.layout.quantised_as);  // linear layers of blocks are all cut, or none is
    const bool as_it_is = source.quantised(unit, range.parameter, format);
    if (!as_it_is || options.base) {
      values.resize(to - from);
      source.read(unit, range.parameter, from - range.begin, values);
    }
    if (options.base)
      if (const auto own = pool.shards.piece_of({from, to}, options.rank); own.begin < own.end)
        options.base->add(unit, range.parameter, own.begin - range.begin,
                          std::span(values).subspan(own.begin - from, own.size()));
    for (std::size_t at = from; at < to; at += kBlock) {
      const auto block = std::span(stored).subspan(stored_bytes(format, at - elements.begin), block_bytes);
      if (as_it_is)
        source.read_block(unit, range.parameter, at - range.begin, block);
      else
        write_nf4_block(format, std::span(values).subspan(at - from, std::min(kBlock, to - at)), offsets[r], block);
    }
  }
  const std::size_t held = executor.storage().held(unit, StateKind::quantised).begin;
  executor.storage().write_state(unit, StateKind::quantised, stored_bytes(format, elements.begin - held), stored);
}

}  // namespace strata::runtime

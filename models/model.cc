#include "models/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "models/files/quantisation.h"
#include "models/parameter.h"

namespace strata::models {

SharedParameter share(std::string name, std::span<const std::unique_ptr<Unit>> units, std::size_t unit,
                      std::size_t parameter) {
  constexpr std::size_t kBlock = device::kSquareBlock;
  const Parameter& p = units[unit]->parameters()[parameter];
  const std::size_t begin = place_in_pool(p.offset);
  const std::size_t end = place_in_pool(p.offset_of(p.pieces() - 1)) + p.piece_capacity();
  STRATA_CHECK_EQ(begin % kBlock, 0u);
  return {std::move(name), unit, parameter, {begin, (end + kBlock - 1) / kBlock * kBlock}, !p.trained(), p.offsets};
}

std::size_t Unit::place(PoolKind pool, std::size_t elements) {
  std::size_t& size = sizes_[static_cast<std::size_t>(pool)];
  const std::size_t alignment = alignment_of(pool), begin = size;
  size = (size + elements + alignment - 1) / alignment * alignment;
  return offset_in(pool, begin);
}

std::size_t Unit::place_parameter(Parameter parameter, PoolKind pool) {
  parameter.offset = place(pool, parameter.size());
  return parameters_.emplace_back(std::move(parameter)).offset;
}

std::size_t Unit::add_cut_parameter(std::string name, std::vector<std::int64_t> shape, const Slice& slice, bool decay,
                                    Init init, bool fp32_moments) {
  STRATA_CHECK(static_cast<std::size_t>(shape[slice.dimension]) % (slice.segments * slice.shards / slice.sharers) ==
                   0 ||
               (slice.dimension == 0 && slice.segments == 1));
  Parameter& p = parameters_.emplace_back();
  p.offset = offset_in(pool_for(name, shape), 0);
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.decay = decay;
  p.init = init;
  p.fp32_moments = fp32_moments;
  p.slice = slice;
  return parameters_.size() - 1;
}

void Unit::place_shards(const ShardRange& shards) {
  STRATA_CHECK(parts_.empty());
  const auto align = [&] {
    for (const PoolKind pool : kPools) {
      std::size_t& size = sizes_[static_cast<std::size_t>(pool)];
      const std::size_t alignment = shard_alignment_of(pool);
      size = (size + alignment - 1) / alignment * alignment;
    }
  };
  align();
  const std::size_t whole = size();
  for (std::size_t shard = 0; shard < shards.count; ++shard) {
    align();
    for (Parameter& p : parameters_)
      if (p.slice.shards > 1) p.offsets.push_back(place(p.pool(), p.piece_capacity()));
  }
  align();
  before_shards_ = shards.first * ((size() - whole) / shards.count);
  for (Parameter& p : parameters_)
    if (p.slice.shards > 1) {
      p.offset = p.offsets.front();
      p.first_shard = shards.first;
    }
}

PoolKind Unit::pool_for(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const bool matrix = quantises_ && shape.size() >= 2;
  const bool stored = matrix && not_quantised_ && !lies_in(*not_quantised_, name);
  const bool quantised = stored || (matrix && !not_quantised_);
  const bool frozen = stored || (adapter_ ? !is_fully_trained(*adapter_, name) : is_frozen_by(freeze_, name));
  return !frozen ? PoolKind::trained : quantised ? PoolKind::quantised : PoolKind::frozen;
}

std::size_t Unit::add_parameter(std::string name, std::vector<std::int64_t> shape, bool decay, Init init,
                                bool fp32_moments) {
  const PoolKind pool = pool_for(name, shape);
  return place_parameter({std::move(name), std::move(shape), 0, decay, init, fp32_moments}, pool);
}

std::vector<LowRank> Unit::add_low_rank(std::size_t in, std::span<const LinearShape> layers, std::size_t shards,
                                        bool cuts_outputs) {
  std::vector<LowRank> all;
  for (const LinearShape& layer : layers) {
    const bool named = adapter_ && !(layer.output && adapter_->target_modules.pattern == kAllLinear);
    all.push_back(named ? low_rank_for(*adapter_, layer.name) : LowRank{});
  }
  const auto add = [&](std::string name, std::vector<std::int64_t> shape, Init init, const Slice& slice) {
    const bool decay = shape.size() > 1;
    if (slice.shards > 1) {
      const std::size_t index = add_cut_parameter(std::move(name), std::move(shape), slice, decay, init);
      parameters_[index].offset = offset_in(PoolKind::trained, 0);
      parameters_[index].of_adapter = true;
      return index;
    }
    const std::size_t offset =
        place_parameter({std::move(name), std::move(shape), 0, decay, init, false, true}, PoolKind::trained);
    return shards > 1 ? parameters_.size() - 1 : offset;
  };
  const auto sizes = [](auto... extents) { return std::vector<std::int64_t>{static_cast<std::int64_t>(extents)...}; };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (all[i].rank == 0) continue;
    const Init uniform{0, 0, 1 / std::sqrt(static_cast<float>(in))};
    const Init normal{0, 1 / static_cast<float>(all[i].rank)};
    all[i].a = add(layers[i].name + ".lora_A.weight", sizes(all[i].rank, in),
                   adapter_->init == AdapterInit::gaussian ? normal : uniform, {1, 1, cuts_outputs ? 1 : shards});
  }
  const auto of_outputs = [&](const LinearShape& layer) {
    return Slice{0, layer.segments, cuts_outputs ? shards : 1, layer.sharers};
  };
  // Magnitudes start as the norms of W's outputs, which a source of weights computes
  // (runtime/weights/adapter/adapter_weights.h).
  const auto add_magnitudes = [&](bool of_output_layer) {
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (all[i].dora && layers[i].output == of_output_layer)
        all[i].magnitude =
            add(layers[i].name + std::string(kMagnitude), sizes(layers[i].out), {1, 0}, of_outputs(layers[i]));
  };
  add_magnitudes(true);  // before B, whose rows lie in the parts of the table's tiles
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (all[i].rank > 0)
      all[i].b =
          add(layers[i].name + ".lora_B.weight", sizes(layers[i].out, all[i].rank), {0, 0}, of_outputs(layers[i]));
  add_magnitudes(false);
  for (std::size_t i = 0; i < layers.size(); ++i)
    linear_layers_.push_back({layers[i].name, all[i], layers[i].input_major});
  return all;
}

device::Dropout Unit::adapter_dropout(const Context& c, std::size_t layer) const {
  constexpr std::uint32_t kFirstSite = 0x40000000;
  const float probability = adapter_ ? static_cast<float>(adapter_->dropout) : 0;
  return {probability, kFirstSite + first_linear_layer_ + static_cast<std::uint32_t>(layer), c.micro_batch, c.scalars};
}

void Unit::end_part() {
  end_part(size());
}

void Unit::end_part(std::size_t trained_end) {
  const Part before = parts_.empty() ? Part{{0, 0}} : parts_.back();
  const Part part{{before.end, trained_end},
                  {before.frozen.end, size(PoolKind::frozen)},
                  {before.quantised.end, size(PoolKind::quantised)}};
  if (part.elements() > 0) parts_.push_back(part);
}

std::size_t Unit::add_table(std::string name, const TableTiles& tiles, std::size_t width, Init init, bool fp32_moments,
                            const LowRank& adapter) {
  static_assert(TableTiles::rows_on(device::Kind::cpu) % kParameterAlignment == 0);
  static_assert(TableTiles::rows_on(device::Kind::cuda) % kParameterAlignment == 0);
  const std::size_t b = adapter.rank > 0 ? adapter.b : size();
  end_part(b);
  const std::size_t offset =
      add_parameter(std::move(name), {static_cast<std::int64_t>(tiles.vocabulary()), static_cast<std::int64_t>(width)},
                    true, init, fp32_moments);
  const PoolKind pool = pool_of(offset);
  STRATA_CHECK(pool != PoolKind::quantised);  // a table does not belong to a linear layer
  const std::size_t begin = place_in_pool(offset), end = size(pool), trained = size(), frozen = size(PoolKind::frozen);
  for (std::size_t tile = 0; tile < tiles.count(); ++tile) {
    const auto rows = [&](std::size_t first, std::size_t columns, std::size_t last) {
      return ElementRange{first + tiles.first(tile) * columns,
                          tile + 1 < tiles.count() ? first + tiles.first(tile + 1) * columns : last};
    };
    if (pool == PoolKind::frozen)
      parts_.push_back({rows(b, adapter.rank, trained), rows(begin, width, end)});
    else
      parts_.push_back({rows(begin, width, end), {frozen, frozen}});
  }
  return offset;
}

double Unit::share_of(double amount, const PartRange& parts) const {
  return amount * static_cast<double>(parts.last - parts.first) / static_cast<double>(parts_.size());
}

Work Unit::full_work(Pass pass) const {
  double share = 1;  // the share of the layers that this rank computes
  for (const Parameter& p : parameters_)
    if (p.slice.shards > 1) share = static_cast<double>(p.pieces()) / static_cast<double>(p.slice.shards);
  const Work own = work(pass, all_parts());
  return {own.flops / share, own.attention_flops / share};
}

Work LossUnit::work(Pass pass, const PartRange& parts) const {
  const Work forward = loss_work(false), both = loss_work(true);
  const auto of = [&](double Work::*kind) {
    return share_of(pass == Pass::forward ? forward.*kind : both.*kind - forward.*kind, parts);
  };
  return {of(&Work::flops), of(&Work::attention_flops), of(&Work::bytes)};
}

void LossUnit::forward(device::Lane&, const Context&, std::size_t, device::ConstView, device::View,
                       device::View) const {
  STRATA_CHECK(!"a unit that ends in a loss is run by loss()");
}

void LossUnit::backward(device::Lane&, const Context&, std::size_t, device::ConstView, device::ConstView,
                        device::ConstView, device::View, const GradientRange&) const {
  STRATA_CHECK(!"a unit that ends in a loss is run by loss()");
}

void LossUnit::logits(device::Lane&, const Context&, device::ConstView, device::View) const {
  STRATA_CHECK(!"this unit was not prepared to generate");
}

void LossUnit::loss_step(device::Lane&, const Context&, LossStep, std::size_t, device::ConstView, device::ExactSum*,
                         device::View, const GradientRange&) const {
  STRATA_CHECK(!"this unit has no table to go over by tiles");
}

void Model::write_constants(std::byte* constants) const {
  fill_constants(constants);
  if (!class_weights.empty())
    std::memcpy(constants + class_weights_at, class_weights.data(), class_weights.size() * sizeof(float));
}

void Model::ignore_layers(std::span<const std::string> layers) {
  for (const std::string& layer : layers)
    for (const char* suffix : {".weight", ".bias", ".gamma", ".beta"}) ignored_suffixes.push_back(layer + suffix);
}

const LossUnit& Model::loss_unit() const {
  const LossUnit* last = units.back()->as_loss();
  STRATA_CHECK(last);
  return *last;
}

std::size_t Model::parameters() const {
  std::size_t n = 0;
  for (const auto& unit : units)
    for (const Parameter& p : unit->parameters()) n += p.size();
  return n;
}

std::size_t Model::trained_parameters() const {
  std::size_t n = 0;
  for (const auto& unit : units)
    for (const Parameter& p : unit->parameters()) n += p.trained() ? p.size() : 0;
  return n;
}

std::size_t Model::lowest_trained() const {
  const auto found = std::ranges::find_if(units, [](const auto& unit) { return unit->trains(); });
  return static_cast<std::size_t>(found - units.begin());
}

double Model::flops_per_token(std::size_t tokens) const {
  double flops = 0;
  const std::size_t lowest = lowest_trained();
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto& unit = units[u];
    const Work forward = unit->full_work(Pass::forward);
    const Work backward = u < lowest ? Work{} : unit->full_work(Pass::backward);
    // Unmasked attention is twice the part below the diagonal; backward is counted as twice forward.
    const double attention = (backward.attention_flops > 0 ? 3 : 1) * (bidirectional ? 1 : 2) * forward.attention_flops;
    flops += (forward.flops + backward.flops + attention) / static_cast<double>(tokens);
  }
  return flops;
}

}  // namespace strata::models

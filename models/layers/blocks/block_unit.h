#pragma once
// models/layers/blocks/ holds transformer blocks: their common parts (this header), the blocks of decoders and encoders
// (blocks.h), and the components of these.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/ops/elementwise.h"
#include "models/layers/blocks/block_attention.h"
#include "models/layers/blocks/split_block.h"
#include "models/layers/linear/split_linear.h"
#include "models/layers/slots.h"
#include "models/model.h"

namespace strata::models {

// The operations of every block, prepared once and shared by all blocks of a model: attention between two products, and
// an MLP with two more.
struct BlockOperations {
  std::array<const SplitLinear*, 4> linears() const { return {&qkv, &projection, &up, &down}; }
  // Places activations that are saved, or that pass because backward ends above every use of them.
  class Placed {
   public:
    Slots& needed(bool in_backward) { return in_backward ? saved_ : passing_; }
    std::size_t saved() const { return saved_.bytes(); }
    std::size_t passing() const { return passing_.bytes(); }

   private:
    Slots saved_, passing_{true};
  };
  // Ends the forward's workspace with the activations that pass. In backward, other values take their place.
  void end_forward_workspace(const Slots& work, const Placed& placed) {
    bytes.saved = placed.saved();
    passing_at = work.bytes();
    passing_bytes = placed.passing();
    bytes.forward_workspace = passing_at + passing_bytes;
  }
  ActivationViews activations(device::View saved, device::View workspace) const {
    return {saved, workspace.sub(passing_at / sizeof(float), passing_bytes / sizeof(float))};
  }

  // The maximum number of bytes that a call of these operations needs.
  std::size_t scratch_bytes() const {
    return std::max(attention.scratch_bytes(threads), models::scratch_bytes(linears(), threads));
  }

  // Places DoRA's squared norms of the layers whose inputs are cut, the projection's before the MLP's: the sums over
  // shards, which a forward saves, and the values of each of this rank's shards.
  void place_squares(const ShardRange& shards, Slots& save, Slots& work) {
    sums_of_squares = save.add(squares(), device::DType::fp32);
    all_squares = work.add(shards.count * squares(), device::DType::fp32);
  }
  std::size_t squares() const { return projection.squares() + down.squares(); }
  template <typename Saved>
  auto projection_squares(const Saved& saved) const {
    return sums_of_squares.of(saved).sub(0, projection.squares());
  }
  template <typename Saved>
  auto down_squares(const Saved& saved) const {
    return sums_of_squares.of(saved).sub(projection.squares(), down.squares());
  }

  // Places what a sequence keeps: keys and values and, after them, DoRA's scales of each layer, and the sums over this
  // rank's shards of the squared norms. The first call computes them for the others.
  void place_cache(bool generates) {
    Slots cache;
    cache.add_bytes(attention.cache_bytes());
    bytes.cache = attention.cache_bytes();
    for (std::size_t i = 0; i < kept_scales.size(); ++i) {
      if (!generates || linears()[i]->scales() == 0) continue;
      kept_scales[i] = cache.add(linears()[i]->scales(), device::DType::fp32);
      bytes.cache = cache.bytes();
    }
    if (!generates || squares() == 0) return;
    kept_squares = cache.add(squares(), device::DType::fp32);
    bytes.cache = cache.bytes();
  }
  KeptScales kept(const Context& c, std::size_t product) const {
    if (kept_scales[product].size == 0) return {};
    return {kept_scales[product].of(c.cache.values), c.cache.first > 0};
  }

  // Places the gradients of adapters' whole tensors (factors, and DoRA's magnitudes): their memory in backward, and the
  // part that crosses ranks.
  void place_sums(Slots& work) {
    for (std::size_t i = 0; i < factor_sums.size(); ++i)
      factor_sums[i] = work.add(linears()[i]->sums(), device::DType::fp32);
  }
  std::size_t crossing() const {
    std::size_t elements = 0;
    for (const SplitLinear* linear : linears()) elements += linear->crossing();
    return elements;
  }
  void write_partial_gradients(device::Lane& lane, device::View workspace, device::View to) const {
    for (std::size_t i = 0, at = 0; i < factor_sums.size(); at += linears()[i++]->crossing())
      if (const std::size_t size = linears()[i]->crossing(); size > 0)
        linears()[i]->write_partial_gradients(lane, factor_sums[i].of(workspace), to.sub(at, size));
  }
  void take_gradients(device::Lane& lane, device::ConstView from, const GradientRange& gradients) const {
    for (std::size_t i = 0, at = 0; i < factor_sums.size(); at += linears()[i++]->crossing())
      if (const std::size_t size = linears()[i]->crossing(); size > 0)
        linears()[i]->take_gradients(lane, from.sub(at, size), gradients);
  }

  // A layer of `in` inputs. `passes`: backward computes their gradient.
  static SplitLinear linear(const RunShape& run, CutSide side, std::size_t in, const SplitLinear::Offsets& offsets,
                            bool biased, bool input_major, bool passes, Gelu gelu_after = Gelu::none,
                            Gelu gelu_before = Gelu::none) {
    return {side,
            {.rows = run.tokens(),
             .in = in,
             .tensors = {},
             .bias = biased,
             .input_major = input_major,
             .dtype = run.dtype,
             .device = run.device,
             .gelu_after = gelu_after,
             .gelu_before = gelu_before,
             .adapter_dropout = run.adapter_dropout(),
             .input_gradient = passes},
            offsets};
  }

  // The gradients of the mixed heads and of the heads, in backward.
  device::View d_mixed(device::View workspace) const { return narrow.of(workspace).sub(0, attention.mixed_size()); }
  device::View d_rows(device::View workspace) const { return wide.of(workspace).sub(0, attention.rows_size()); }
  // The rows of x that a slot of the workspace holds.
  device::View rows_of(const Slot& slot, device::View workspace) const {
    return slot.of(workspace).sub(0, rows * hidden);
  }

  std::size_t tokens, hidden;
  std::size_t rows;  // rows of x and y: the tokens, or this rank's part of them
  device::DType dtype;
  int threads;
  BackwardEnd end;
  BlockAttention attention;
  SplitLinear qkv, projection, up, down;  // up: with the gate, if the MLP has one
  UnitBytes bytes = {};
  std::size_t passing_at = 0, passing_bytes = 0;  // place and size of passing activations in the forward's workspace
  std::array<Slot, 4> factor_sums = {}, kept_scales = {};  // one per linear layer
  Slot sums_of_squares = {}, all_squares = {}, kept_squares = {}, scratch = {};
  Slot narrow = {}, wide = {};  // workspace for rows as wide as x or the mixed heads; as the MLP or the heads
};

// A transformer block of any family. `Plan` is BlockOperations plus the family's additions, and answers the block's
// queries.
template <typename Plan>
class BlockUnit : public SplitBlock {
 public:
  // `one_row`: the same plan for calls with one row; null: all calls use `plan`.
  void prepare(std::shared_ptr<const Plan> plan, std::shared_ptr<const Plan> one_row = nullptr) {
    plan_ = std::move(plan);
    one_row_ = std::move(one_row);
  }

  UnitBytes bytes() const override { return plan_->bytes; }
  std::string set_up(device::Lane& lane) const override { return plan_->attention.set_up(lane); }
  void list_products(std::vector<device::ProductShape>& out) const override {
    for (const SplitLinear* linear : plan_->linears()) linear->list_products(out);
  }
  Work work(Pass pass, const PartRange& parts) const override {
    const Plan& p = *plan_;
    device::AttentionShape attention = p.attention.shape();
    attention.heads *= p.qkv.shards();
    return block_work(*this, pass, parts, p.linears(), attention, p.tokens * p.hidden * size_of(p.dtype), p.end,
                      p.passing_bytes);
  }

 protected:
  BlockUnit(std::size_t layer, const RunShape& run)
      : SplitBlock("block " + std::to_string(layer), run), layer_(layer), first_row_(run.own_rows().begin) {
    freeze(run.freeze, run.adapter);
    if (run.quantise) quantise_matrices(run.not_quantised);
  }

  ActivationViews activations(const Context& c, device::View saved) const final {
    return plan_of(c).activations(saved, c.workspace);
  }
  void attend(device::Lane& lane, const Context& c, const ActivationViews& saved) const final {
    const Plan& b = plan_of(c);
    b.attention.attend(lane, c, dropout_at(c, 0, b.attention.dropout()), saved, b.scratch.of(c.workspace));
  }
  void attend_backward(device::Lane& lane, const Context& c, device::ConstView,
                       device::ConstView saved) const override {
    const Plan& b = *plan_;
    b.attention.attend_backward(lane, c, dropout_at(c, 0, b.attention.dropout()), saved, b.d_mixed(c.workspace),
                                b.d_rows(c.workspace), b.scratch.of(c.workspace));
  }

  std::size_t squares() const final { return plan_->squares(); }
  void write_partial_squares(device::Lane& lane, const Context& c, device::View to) const final {
    const Plan& b = plan_of(c);
    const bool keeps = b.kept_squares.size > 0;
    const device::View sums = keeps ? b.kept_squares.of(c.cache.values) : to.sub(0, b.squares());
    if (!keeps || c.cache.first == 0) sum_squares(lane, c, sums);
    if (keeps) cast(lane, sums, to.sub(0, b.squares()));
  }
  void take_squares(device::Lane& lane, const Context& c, const ActivationViews& saved) const final {
    const Plan& b = plan_of(c);
    const std::size_t ranks = shards().of / shards().count;
    tree_sum(lane, ranks, {c.total.data, ranks * b.squares(), device::DType::fp32}, {}, b.sums_of_squares.of(saved));
  }
  device::View saved_squares(const Context& c, const ActivationViews& saved) const final {
    return plan_of(c).sums_of_squares.of(saved);
  }

  const Plan& plan_of(const Context& c) const { return c.one_row() && one_row_ ? *one_row_ : *plan_; }

  // Dropout at one of the block's four places, each with its own random numbers. Sites below 4 belong to the
  // embeddings.
  device::Dropout dropout_at(const Context& c, std::uint32_t place, float probability) const {
    return {probability, static_cast<std::uint32_t>(layer_ * 4 + place + 4), c.micro_batch, c.scalars};
  }
  // The same for a matrix [rows, hidden], if this rank may have only some of its rows.
  device::Dropout row_dropout_at(const Context& c, std::uint32_t place, float probability) const {
    device::Dropout use = dropout_at(c, place, probability);
    use.first = first_row_ * plan_->hidden;
    return use;
  }
  // The gradient before dropout: dy itself or, if anything was dropped, in `dropped`.
  static device::ConstView through_dropout(device::Lane& lane, const device::Dropout& use, device::ConstView dy,
                                           device::View dropped) {
    if (use.probability == 0) return dy;
    dropout(lane, use, dy, {}, dropped);
    return dropped;
  }

  std::size_t layer_;
  std::shared_ptr<const Plan> plan_;

 private:
  // The sums over this rank's shards of DoRA's squared norms.
  void sum_squares(device::Lane& lane, const Context& c, device::View sums) const {
    const Plan& b = plan_of(c);
    const device::View all = b.all_squares.of(c.workspace), scratch = b.scratch.of(c.workspace);
    const std::size_t of_projection = b.projection.squares(), of_down = b.down.squares();
    for (std::size_t v = 0; v < shards().count; ++v) {
      const device::View own = all.sub(v * b.squares(), b.squares());
      if (of_projection > 0)
        b.projection.write_partial_squares(lane, v, c.parameters, own.sub(0, of_projection), scratch);
      if (of_down > 0) b.down.write_partial_squares(lane, v, c.parameters, own.sub(of_projection, of_down), scratch);
    }
    tree_sum(lane, shards().count, all, {}, sums);
  }

  std::size_t first_row_;
  std::shared_ptr<const Plan> one_row_;
};

// Adds a Block(shape, layer, run) for every layer. Blocks of the same kind_of(layer), parameter offsets, adapters and
// end of backward share one plan, made by make_plan(run, offsets, kind, end); offsets differ if other tensors are
// frozen.
template <typename Block, typename Plan, typename Shape, typename KindOf, typename MakePlan>
void add_blocks(std::vector<std::unique_ptr<Unit>>& units, const Shape& shape, std::size_t layers, const RunShape& run,
                const KindOf& kind_of, const MakePlan& make_plan) {
  struct Prepared {
    std::shared_ptr<const Plan> plan, one_row;
  };
  using Key = std::tuple<decltype(kind_of(0)), std::vector<std::size_t>, std::vector<LowRank>, BlockStep>;
  std::map<Key, Prepared> kinds;
  RunShape single = run;
  single.seq = 1;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    auto block = std::make_unique<Block>(shape, layer, run);
    const auto kind = kind_of(layer);
    if (std::ranges::none_of(units, [](const auto& unit) { return unit->trains(); })) block->end_backward();
    const BackwardEnd end = block->backward_end();
    std::vector<std::size_t> offsets;
    for (const Parameter& parameter : block->parameters()) offsets.push_back(parameter.offset);
    std::vector<LowRank> low_ranks;
    for (const Unit::LinearLayer& linear : block->linear_layers()) low_ranks.push_back(linear.low_rank);
    Prepared& prepared = kinds[{kind, std::move(offsets), std::move(low_ranks), end.step}];
    if (!prepared.plan) {
      prepared.plan = make_plan(run, block->offsets(), kind, end);
      if (run.cache > 0 && run.tokens() > 1) prepared.one_row = make_plan(single, block->offsets(), kind, end);
    }
    block->prepare(prepared.plan, prepared.one_row);
    units.push_back(std::move(block));
  }
}

}  // namespace strata::models

#pragma once
// models/layers/ is what families are made of: embeddings, blocks (here), heads, each a Unit or a part of one.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/ops/attention/attention.h"
#include "models/layers/block_work.h"
#include "models/model.h"

namespace strata::models {

// A transformer block of any family. Its operations are prepared once and shared by all blocks: a Plan has their
// `shape` (hidden, attention_dropout), tokens, dtype, attention, linears() by part, and bytes; it answers for the
// block.
template <typename Plan>
class BlockUnit : public Unit {
 public:
  void prepare(std::shared_ptr<const Plan> plan) { plan_ = std::move(plan); }

  UnitBytes bytes() const override { return plan_->bytes; }
  std::string set_up(device::Lane& lane) const override {
    if (plan_->bytes.cache) return {};
    return device::prepare_attention(lane, plan_->attention, plan_->dtype,
                                     {.probability = plan_->shape.attention_dropout});
  }
  void list_products(std::vector<device::ProductShape>& out) const override {
    for (const Linear* linear : plan_->linears()) linear->list_products(out);
  }
  Work work(Pass pass, const ElementRange& elements) const override {
    const Plan& p = *plan_;
    return block_work(*this, pass, elements, p.linears(), p.attention, p.tokens * p.shape.hidden * size_of(p.dtype));
  }

 protected:
  explicit BlockUnit(std::size_t layer) : Unit("block " + std::to_string(layer)), layer_(layer) {}

  std::size_t layer_;
  std::shared_ptr<const Plan> plan_;
};

// Adds a Block(shape, layer) for every layer. offsets(), of its parameters, are alike in all of them.
template <typename Block, typename Plan, typename Shape>
void add_blocks(std::vector<std::unique_ptr<Unit>>& units, const Shape& shape, const RunShape& run) {
  std::shared_ptr<const Plan> plan;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    auto block = std::make_unique<Block>(shape, layer);
    if (!plan) plan = std::make_shared<const Plan>(shape, run, block->offsets());
    block->prepare(plan);
    units.push_back(std::move(block));
  }
}

}  // namespace strata::models

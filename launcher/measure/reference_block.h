#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/lane.h"
#include "device/memory.h"
#include "device/numeric/exact_sum.h"
#include "device/ops/attention/attention.h"
#include "device/ops/products/product.h"
#include "models/model.h"

namespace strata::launcher {

// Calls that are timed one by one. They are short, so that other work on the machine disturbs only a few of them.
using Calls = std::vector<std::function<void()>>;

// Gives each operand its own memory.
class Operands {
 public:
  device::View take(std::size_t size, device::DType dtype) {
    const device::Arena& arena = arenas_.emplace_back(size * device::size_of(dtype) + device::kBufferAlignment);
    return {arena.data(), size, dtype};
  }

 private:
  std::vector<device::Arena> arenas_;
};

// The block and head of a one-block GPT-2, for timing: the whole as a step calls it, and the products and attention on
// their own. All work is issued to `lane`, which must outlive it.
class ReferenceBlock {
 public:
  struct Shape {
    std::size_t width, batch, seq, vocabulary;
    device::DType dtype;
  };
  ReferenceBlock(device::Lane& lane, const Shape& shape);

  // The block's forward and backward, part by part; its products alone; its attention alone.
  Calls block();
  Calls products() { return calls_of(products_); }
  Calls attention();
  // The head's forward, loss and backward; its products alone.
  Calls head();
  Calls head_products() { return calls_of(head_products_); }

  // The work of the calls above, as the units state it.
  models::Work block_work() const;
  models::Work head_work() const { return model_->loss_unit().loss_work(true); }

 private:
  struct TimedProduct {
    device::Product product;
    device::View a, b, c, bias, scratch;
  };
  std::vector<TimedProduct> prepare(const models::Unit& unit);
  Calls calls_of(const std::vector<TimedProduct>& products);
  models::Context context(device::View parameters, device::View workspace) const;

  device::Lane& lane_;
  Shape shape_;
  std::unique_ptr<models::Model> model_;
  Operands memory_;
  std::vector<std::uint32_t> tokens_, positions_;
  std::vector<device::RowRange> documents_;
  std::vector<std::int32_t> labels_;
  device::StepScalars scalars_{};
  device::ExactSum loss_;
  device::View parameters_, gradients_, head_parameters_, head_gradients_, table_, table_gradients_;
  device::View x_, y_, dy_, dx_, saved_, forward_workspace_, backward_workspace_, loss_workspace_;
  device::AttentionShape attention_;
  device::View heads_, mixed_, lse_, d_heads_, attention_workspace_;
  std::vector<TimedProduct> products_, head_products_;
};

}  // namespace strata::launcher

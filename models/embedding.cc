#include "models/embedding.h"

#include <algorithm>

#include "device/ops/dropout.h"
#include "device/ops/embedding.h"
#include "models/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

constexpr std::size_t kBlock = 4096;  // elements of one block of the gradient norm

class Embedding final : public Unit {
 public:
  Embedding(const EmbeddingSpec& spec, const RunShape& run)
      : Unit("embedding"), spec_(spec), tokens_(run.tokens()), table_size_(spec.vocabulary * spec.hidden) {
    const auto width = static_cast<std::int64_t>(spec.hidden);
    add_parameter(spec.table_name, {static_cast<std::int64_t>(spec.vocabulary), width}, true, spec.init);
    if (!spec.position_name.empty())
      positions_offset_ =
          add_parameter(spec.position_name, {static_cast<std::int64_t>(spec.positions), width}, true, spec.init);
    const std::size_t scratch = std::max(device::embedding_backward_workspace(tokens_, spec.vocabulary),
                                         device::embedding_backward_workspace(tokens_, spec.positions));
    Slots work;
    scratch_ = work.add_bytes(scratch);
    dropped_ = work.add(spec.dropout > 0 ? tokens_ * spec.hidden : 0, run.dtype);
    bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}

  void forward(Lane& lane, const Context& c, ConstView, View y, View) const override {
    const ConstView positions =
        positions_offset_ ? c.parameters.sub(positions_offset_, spec_.positions * spec_.hidden) : ConstView{};
    embedding_forward(lane, tokens_, spec_.hidden, c.batch.tokens, c.batch.positions, c.parameters.sub(0, table_size_),
                      positions, y);
    if (spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, ConstView, ConstView, ConstView dy, View, View gradients) const override {
    const View scratch = scratch_.of(c.workspace);
    if (spec_.dropout > 0) {
      const View dropped = dropped_.of(c.workspace);
      dropout(lane, dropout_of(c), dy, {}, dropped);
      dy = dropped;
    }
    embedding_backward(lane, tokens_, spec_.hidden, c.batch.tokens, spec_.vocabulary, dy, gradients.sub(0, table_size_),
                       scratch);
    if (positions_offset_)
      embedding_backward(lane, tokens_, spec_.hidden, c.batch.positions, spec_.positions, dy,
                         gradients.sub(positions_offset_, spec_.positions * spec_.hidden), scratch);
  }

 private:
  device::Dropout dropout_of(const Context& c) const { return {spec_.dropout, 0, c.micro_batch, c.scalars}; }

  EmbeddingSpec spec_;
  std::size_t tokens_, table_size_, positions_offset_ = 0;
  Slot scratch_, dropped_;
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding(const EmbeddingSpec& spec, const RunShape& run) {
  return std::make_unique<Embedding>(spec, run);
}

std::size_t tied_elements(std::size_t vocabulary, std::size_t hidden) {
  return (vocabulary * hidden + kBlock - 1) / kBlock * kBlock;
}

}  // namespace strata::models

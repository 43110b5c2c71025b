#include "launcher/measure/reference_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/files/config.h"

namespace strata::launcher {
namespace {

using device::DType;
using device::ProductShape;
using device::View;

constexpr std::size_t kHeadDim = 64;

std::unique_ptr<models::Model> one_block(const ReferenceBlock::Shape& s, int threads) {
  models::Config config = models::Config::parse(models::preset_config("tiny-gpt2"), "preset tiny-gpt2");
  const auto set = [&](const char* key, std::size_t value) { config.override_key(key, fmt::to_string(value)); };
  set("n_embd", s.width);
  set("n_inner", 4 * s.width);
  set("n_head", std::max<std::size_t>(1, s.width / kHeadDim));
  set("n_layer", 1);
  set("n_positions", s.seq);
  set("vocab_size", s.vocabulary);
  return models::make_model(config, {s.batch, s.seq, s.dtype, threads});
}

// Fills the view with numbers as large as in a model. Zeros would be multiplied just as fast, but would leave the loss
// nothing to do.
void fill(View view) {
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  visit(view.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < view.size; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto whole = static_cast<float>(static_cast<std::int64_t>(state) >> 40);  // 24 bits, signed
      view.as<T>()[i] = device::from_float<T>(std::ldexp(whole, -25));
    }
  });
}

}  // namespace

ReferenceBlock::ReferenceBlock(device::Lane& lane, const Shape& shape)
    : lane_(lane),
      shape_(shape),
      model_(one_block(shape, lane.threads())),
      tokens_(shape.batch * shape.seq),
      positions_(tokens_.size()),
      documents_(tokens_.size(), {0, static_cast<std::uint32_t>(shape.seq)}),
      labels_(tokens_.size()) {
  const DType t = shape.dtype;
  const std::size_t n = tokens_.size(), d = shape.width;
  for (std::size_t i = 0; i < n; ++i) {
    positions_[i] = static_cast<std::uint32_t>(i % shape.seq);
    labels_[i] = static_cast<std::int32_t>(i * 7919 % shape.vocabulary);
  }
  scalars_.loss_gradient = 1 / static_cast<float>(n);
  const auto some = [&](std::size_t size, DType dtype) {
    const View view = memory_.take(size, dtype);
    fill(view);
    return view;
  };
  const auto bytes = [&](std::size_t size) { return memory_.take(size / sizeof(float) + 1, DType::fp32); };
  const models::Unit& block = *model_->units[1];
  const models::LossUnit& head = model_->loss_unit();
  parameters_ = some(block.size(), t);
  gradients_ = some(block.size(), t);
  head_parameters_ = some(head.size(), t);
  head_gradients_ = some(head.size(), t);
  const std::size_t table = head.shared()->elements.size();
  table_ = some(table, t);
  table_gradients_ = some(table, t);
  for (View* view : {&x_, &y_, &dy_, &dx_}) *view = some(n * d, t);
  const models::UnitBytes needs = block.bytes();
  saved_ = bytes(needs.saved);
  forward_workspace_ = bytes(needs.forward_workspace);
  backward_workspace_ = bytes(needs.backward_workspace);
  loss_workspace_ = bytes(head.loss_workspace());

  attention_ = {shape.batch,
                shape.seq,
                model_->heads,
                model_->heads,
                model_->head_dim,
                3 * d,
                3 * d,
                3 * d,
                1 / std::sqrt(static_cast<float>(model_->head_dim))};
  heads_ = some(3 * n * d, t);
  d_heads_ = some(3 * n * d, t);
  mixed_ = some(n * d, t);
  lse_ = memory_.take(n * model_->heads, DType::fp32);
  attention_workspace_ = bytes(attention_workspace({}, attention_, t, false, lane.threads()));
  products_ = prepare(block);
  head_products_ = prepare(head);
}

std::vector<ReferenceBlock::TimedProduct> ReferenceBlock::prepare(const models::Unit& unit) {
  std::vector<ProductShape> shapes;
  unit.list_products(shapes);
  std::vector<TimedProduct> products;
  for (ProductShape s : shapes) {
    s.epilogue = device::Epilogue::none;  // times the product alone
    const auto extent = [](std::int64_t rows, std::int64_t row) { return static_cast<std::size_t>(rows * row); };
    TimedProduct& p = products.emplace_back(TimedProduct{device::Product({}, s), {}, {}, {}, {}, {}});
    p.a = memory_.take(extent(s.transpose_a ? s.k : s.m, s.lda), s.in);
    p.b = memory_.take(extent(s.transpose_b ? s.n : s.k, s.ldb), s.in);
    p.c = memory_.take(extent(s.m, s.ldc), s.out);
    if (s.bias) p.bias = memory_.take(static_cast<std::size_t>(s.n), s.in);
    p.scratch = memory_.take(p.product.workspace_bytes(lane_.threads()) / sizeof(float) + 1, DType::fp32);
    fill(p.a);
    fill(p.b);
  }
  return products;
}

Calls ReferenceBlock::calls_of(const std::vector<TimedProduct>& products) {
  Calls calls;
  for (const TimedProduct& p : products)
    calls.push_back([this, &p] { p.product.run(lane_, p.a, p.b, p.bias, p.c, p.scratch); });
  return calls;
}

models::Context ReferenceBlock::context(View parameters, View workspace) const {
  models::Context c{};
  c.batch = {tokens_.data(), labels_.data(), positions_.data(), documents_.data()};
  c.scalars = &scalars_;
  c.parameters = {parameters};
  c.shared = {table_};
  c.shared_gradients = {table_gradients_};
  c.workspace = workspace;
  return c;
}

Calls ReferenceBlock::block() {
  const models::Unit& block = *model_->units[1];
  Calls calls;
  for (std::size_t part = 0; part < block.parts().size(); ++part)
    calls.push_back(
        [this, &block, part] { block.forward(lane_, context(parameters_, forward_workspace_), part, x_, y_, saved_); });
  for (std::size_t part = block.parts().size(); part-- > 0;)
    calls.push_back([this, &block, part] {
      block.backward(lane_, context(parameters_, backward_workspace_), part, x_, saved_, dy_, dx_, {gradients_});
    });
  return calls;
}

Calls ReferenceBlock::attention() {
  const auto part = [this](View heads, std::size_t i) {
    return heads.sub(i * shape_.width, heads.size - i * shape_.width);
  };
  return {[this, part] {
            attention_forward(lane_, attention_, documents_.data(), part(heads_, 0), part(heads_, 1), part(heads_, 2),
                              mixed_, lse_, {}, attention_workspace_);
          },
          [this, part] {
            attention_backward(lane_, attention_, documents_.data(), part(heads_, 0), part(heads_, 1), part(heads_, 2),
                               mixed_, lse_, x_, part(d_heads_, 0), part(d_heads_, 1), part(d_heads_, 2), {},
                               attention_workspace_);
          }};
}

Calls ReferenceBlock::head() {
  return {[this] {
    model_->loss_unit().loss(lane_, context(head_parameters_, loss_workspace_), x_, &loss_, dx_, head_gradients_);
  }};
}

models::Work ReferenceBlock::block_work() const {
  const models::Unit& block = *model_->units[1];
  const models::PartRange all = block.all_parts();
  const models::Work forward = block.work(models::Pass::forward, all),
                     backward = block.work(models::Pass::backward, all);
  return {forward.flops + backward.flops, forward.attention_flops + backward.attention_flops,
          forward.bytes + backward.bytes};
}

}  // namespace strata::launcher

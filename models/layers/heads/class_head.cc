#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "device/ops/attention/attention.h"
#include "device/ops/elementwise.h"
#include "device/ops/losses/losses.h"
#include "device/ops/products/product.h"
#include "models/layers/heads/head_parts.h"
#include "models/layers/heads/heads.h"
#include "models/layers/linear/linear.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::Product;
using device::ProductShape;
using device::View;

// A dropout site far from those of the blocks, which count up from 0.
constexpr std::uint32_t kSite = 0x7fffff00;

// The stride between rows of scores, in elements, rounded up to whole vectors.
std::size_t stride_of(std::size_t classes) {
  return (classes + 15) / 16 * 16;
}

// For every row, the mean over the rows of its document; 0 for rows outside of documents. It is computed as attention
// with equal scores, so the bits of a document's mean do not depend on its neighbours.
class DocumentMean {
 public:
  // heads: the number of attention heads, which divides `hidden`. Reserves memory in a unit's workspace.
  DocumentMean(std::size_t hidden, std::size_t heads, const RunShape& run, Slots& workspace)
      : shape_{.batch = run.batch,
               .seq = run.seq,
               .heads = heads,
               .kv_heads = heads,
               .head_dim = hidden / heads,
               .q_stride = hidden,
               .k_stride = hidden,
               .v_stride = hidden,
               .scale = 1,
               .causal = false,
               .packed = run.packed} {
    const std::size_t all = run.tokens() * hidden, learnt = run.training ? all : 0;
    scratch_ = workspace.add_bytes(device::attention_workspace(run.device, shape_, run.dtype, false, run.threads));
    zeros_ = workspace.add(all, run.dtype);
    mean_ = workspace.add(all, run.dtype);
    lse_ = workspace.add(run.tokens() * heads, DType::fp32);
    d_queries_ = workspace.add(learnt, run.dtype);
    d_keys_ = workspace.add(learnt, run.dtype);
    dx_ = workspace.add(learnt, run.dtype);
  }

  // x: [tokens, hidden]. The result is in the workspace, as is backward()'s.
  View forward(Lane& lane, const Context& c, ConstView x) const {
    const View zeros = zeros_.of(c.workspace), mean = mean_.of(c.workspace);
    zero(lane, zeros);
    attention_forward(lane, shape_, c.batch.documents, zeros, zeros, x, mean, lse_.of(c.workspace), {},
                      scratch_.of(c.workspace));
    return mean;
  }
  // The gradient of x, given the gradient of forward()'s result.
  View backward(Lane& lane, const Context& c, ConstView x, ConstView dy) const {
    const View zeros = zeros_.of(c.workspace), dx = dx_.of(c.workspace);
    attention_backward(lane, shape_, c.batch.documents, zeros, zeros, x, mean_.of(c.workspace), lse_.of(c.workspace),
                       dy, d_queries_.of(c.workspace), d_keys_.of(c.workspace), dx, {}, scratch_.of(c.workspace));
    return dx;
  }

 private:
  device::AttentionShape shape_;
  Slot scratch_, zeros_, mean_, lse_, d_queries_, d_keys_, dx_;
};

class ClassHead final : public LossUnit {
 public:
  ClassHead(const ClassHeadSpec& spec, const RunShape& run)
      : LossUnit("head"),
        spec_(spec),
        dtype_(run.dtype),
        training_(run.training),
        tokens_(run.tokens()),
        loss_rows_(run, spec.hidden),
        rows_(loss_rows_.count()),
        normed_rows_(spec.mean_heads > 0 ? tokens_ : rows_),
        shape_{rows_, spec.classes, stride_of(spec.classes), spec.target},
        scores_(run.device, forward_product()),
        input_(run.device, input_product()),
        weights_(run.device, weights_product()) {
    STRATA_CHECK(spec.activation != device::Activation::gelu_tanh);
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden), k = static_cast<std::int64_t>(spec.classes);
    if (!spec.norm_gain.empty()) {
      const std::size_t gain = add_parameter(spec.norm_gain, {d}, false, {1, 0});
      const bool biased = !spec.norm_bias.empty();
      const std::size_t bias = biased ? add_parameter(spec.norm_bias, {d}, false, {0, 0}) : 0;
      norm_.emplace(norm_kind(biased, spec.centred), norm_of_rows(normed_rows_, spec.hidden, spec.eps), gain, bias);
    }
    if (!spec.dense.empty()) {
      const std::size_t weight = add_parameter(spec.dense + ".weight", {d, d}, true, spec.init);
      const std::size_t bias = spec.dense_biased ? add_parameter(spec.dense + ".bias", {d}, false, {0, 0}) : 0;
      const Gelu gelu = spec.activation == device::Activation::gelu_erf ? Gelu::erf : Gelu::none;
      const LowRank low_rank = add_low_rank(spec.hidden, std::array{LinearShape{spec.dense, spec.hidden}})[0];
      dense_.emplace(Linear::Spec{rows_,
                                  spec.hidden,
                                  {{spec.hidden, weight, bias, low_rank}},
                                  spec.dense_biased,
                                  false,
                                  run.dtype,
                                  run.device,
                                  gelu,
                                  Gelu::none,
                                  run.adapter_dropout()});
    }
    if (!spec.dense_norm.empty())
      dense_norm_.emplace(NormKind::layer_without_bias, norm_of_rows(rows_, spec.hidden, spec.eps),
                          add_parameter(spec.dense_norm + ".weight", {d}, false, {1, 0}));
    weight_ = add_parameter(spec.scores + ".weight", {k, d}, true, spec.init);
    if (spec.biased) bias_ = add_parameter(spec.scores + ".bias", {k}, false, {0, 0});
    end_part();
    place(run);
  }

  std::size_t classes() const override { return spec_.classes; }
  std::size_t score_stride() const override { return shape_.stride; }
  std::size_t class_words() const override { return device::class_set_words(spec_.target, spec_.classes); }
  std::string score_layer() const override { return spec_.scores; }
  std::size_t loss_workspace() const override { return bytes_; }
  Work loss_work(bool learns) const override {
    const double products = learns ? learns_scores() ? 3 : 2 : 1, rows = static_cast<double>(rows_);
    const double dense = !dense_ ? 0 : dense_->forward_flops() + (learns ? dense_->backward_flops() : 0);
    return {.flops = products * (2 * rows * static_cast<double>(spec_.classes * spec_.hidden)) + dense,
            .bytes = products * static_cast<double>((rows_ * 4 + (loss_rows_.selects() ? tokens_ : 0)) * spec_.hidden *
                                                    size_of(dtype_))};
  }
  void list_products(std::vector<ProductShape>& out) const override {
    if (dense_) dense_->list_products(out);
    for (const Product* product : {&scores_, &input_}) out.push_back(product->shape());
    if (learns_scores()) out.push_back(weights_.shape());
  }

  void loss(Lane& lane, const Context& c, ConstView x, device::ExactSum* loss, View dx, View gradients) const override {
    const View scratch = scratch_.of(c.workspace), inner = inner_.of(c.workspace), scores = fp32_.of(c.workspace);
    const ConstView dense_x = before_dense(lane, c, take(lane, c, x));
    if (dense_) {
      dense_->forward(lane, c.parameters, dense_x, inner, scratch, fuses_gelu() ? active_.of(c.workspace) : View{},
                      adapter_dropout(c, 0));
      // A GELU is part of the product.
      if (!fuses_gelu()) activation_forward(lane, spec_.activation, inner, inner);
    }
    ConstView features = !dense_ ? dense_x : ConstView((fuses_gelu() ? active_ : inner_).of(c.workspace));
    if (dense_norm_) features = norm_dense(lane, c, features);
    if (spec_.dropout_after > 0) {
      const View dropped = dropped_after_.of(c.workspace);
      dropout(lane, dropout_of(c, spec_.dropout_after, 1), features, {}, dropped);
      features = dropped;
    }
    const std::size_t weight_size = spec_.classes * spec_.hidden;
    const ConstView weight = c.parameters.sub(weight_, weight_size);
    const ConstView bias = spec_.biased ? c.parameters.sub(bias_, spec_.classes) : ConstView{};
    scores_.run(lane, features, weight, bias, scores, scratch);
    if (c.scores) cast(lane, scores, c.scores);
    const View losses = losses_.of(c.workspace), d_scores = dx ? d_scores_.of(c.workspace) : View{};
    class_loss(lane, shape_, scores, c.batch.labels, c.batch.class_sets, c.class_weights, c.scalars, losses, d_scores);
    sum_losses(lane, losses, loss);
    if (!dx) return;

    const GradientRange own{gradients};
    if (learns_scores()) weights_.run(lane, d_scores, features, {}, own.sub(weight_, weight_size), scratch);
    if (spec_.biased && !is_frozen(bias_))
      column_sum(lane, rows_, spec_.classes, shape_.stride, d_scores, own.sub(bias_, spec_.classes), scratch);
    View d = one_.of(c.workspace), other = two_.of(c.workspace);
    input_.run(lane, d_scores, weight, {}, d, scratch);
    if (spec_.dropout_after > 0) dropout(lane, dropout_of(c, spec_.dropout_after, 1), d, {}, d);
    if (dense_) {
      if (dense_norm_) {
        unnorm_dense(lane, c, d, (fuses_gelu() ? active_ : inner_).of(c.workspace), other, own);
        std::swap(d, other);
      }
      activation_backward(lane, spec_.activation, d, inner, d);
      dense_->backward(lane, c.parameters, dense_x, d, other, own, scratch, {}, adapter_dropout(c, 0));
      std::swap(d, other);
      if (spec_.dropout_before > 0) dropout(lane, dropout_of(c, spec_.dropout_before, 0), d, {}, d);
    }
    if (mean_) return spread(lane, c, d, x, dx, own);
    if (norm_) {
      unnorm(lane, c, d, loss_rows_.selects() ? ConstView(selected_.of(c.workspace)) : x, other, own);
      std::swap(d, other);
    }
    if (loss_rows_.selects())
      loss_rows_.put_back(lane, c, d, dx, scratch);
    else
      cast(lane, d, dx);
  }

 private:
  // Passes the mean's gradient on to all rows.
  void spread(Lane& lane, const Context& c, ConstView d, ConstView x, View dx, const GradientRange& own) const {
    if (loss_rows_.selects()) {
      const View d_means = d_means_.of(c.workspace);
      loss_rows_.put_back(lane, c, d, d_means, scratch_.of(c.workspace));
      d = d_means;
    }
    if (!norm_) return cast(lane, mean_->backward(lane, c, x, d), dx);
    unnorm(lane, c, mean_->backward(lane, c, normed_.of(c.workspace), d), x, dx, own);
  }

  bool learns_scores() const { return !is_frozen(weight_); }
  bool fuses_gelu() const { return spec_.activation == device::Activation::gelu_erf; }
  std::int64_t rows() const { return static_cast<std::int64_t>(rows_); }
  std::int64_t width() const { return static_cast<std::int64_t>(spec_.hidden); }
  std::int64_t columns() const { return static_cast<std::int64_t>(spec_.classes); }
  std::int64_t stride() const { return static_cast<std::int64_t>(shape_.stride); }
  ProductShape forward_product() const {
    return {rows(),  columns(), width(), false,       true,         width(),
            width(), stride(),  dtype_,  DType::fp32, spec_.biased, false};
  }
  ProductShape input_product() const {
    return {rows(), width(), columns(), false, false, stride(), width(), width(), dtype_, dtype_, false, false};
  }
  ProductShape weights_product() const {
    return {columns(), width(), rows(), true, false, stride(), width(), width(), dtype_, dtype_, false, false};
  }

  void place(const RunShape& run) {
    const int threads = run.threads;
    std::size_t scratch = std::max(
        {scores_.workspace_bytes(threads), input_.workspace_bytes(threads), weights_.workspace_bytes(threads)});
    if (dense_) scratch = std::max(scratch, dense_->scratch_bytes(threads));
    for (const auto& norm : {norm_, dense_norm_})
      if (norm) scratch = std::max(scratch, norm->scratch_bytes());
    if (spec_.biased) scratch = std::max(scratch, device::column_sum_workspace(rows_, spec_.classes));
    scratch = std::max(scratch, loss_rows_.scratch_bytes());
    const std::size_t all = rows_ * spec_.hidden;
    const auto if_any = [&](bool any) { return any ? all : 0; };
    Slots work;
    scratch_ = work.add_bytes(scratch);
    norm_mean_ = work.add(normed_rows_, DType::fp32);
    rstd_ = work.add(normed_rows_, DType::fp32);
    dense_mean_ = work.add(dense_norm_ ? rows_ : 0, DType::fp32);
    dense_rstd_ = work.add(dense_norm_ ? rows_ : 0, DType::fp32);
    no_bias_ = work.add(spec_.centred || dense_norm_ ? spec_.hidden : 0, dtype_);
    losses_ = work.add(rows_, DType::fp32);
    selected_ = work.add(if_any(loss_rows_.selects()), dtype_);
    normed_ = work.add(norm_ ? normed_rows_ * spec_.hidden : 0, dtype_);
    if (spec_.mean_heads > 0) mean_.emplace(spec_.hidden, spec_.mean_heads, run, work);
    d_means_ = work.add(mean_ && loss_rows_.selects() && training_ ? tokens_ * spec_.hidden : 0, dtype_);
    dropped_before_ = work.add(if_any(dense_ && spec_.dropout_before > 0), dtype_);
    inner_ = work.add(if_any(dense_.has_value()), dtype_);
    active_ = work.add(if_any(dense_ && fuses_gelu()), dtype_);
    dense_normed_ = work.add(if_any(dense_norm_.has_value()), dtype_);
    dropped_after_ = work.add(if_any(spec_.dropout_after > 0), dtype_);
    fp32_ = work.add(rows_ * shape_.stride, DType::fp32);
    d_scores_ = work.add(training_ ? rows_ * shape_.stride : 0, dtype_);
    one_ = work.add(if_any(training_), dtype_);
    two_ = work.add(if_any(training_), dtype_);
    bytes_ = work.bytes();
  }

  device::Dropout dropout_of(const Context& c, float probability, std::uint32_t place) const {
    return {probability, kSite + place, c.micro_batch, c.scalars};
  }
  // The rows that enter the loss, normalized if the family requires it.
  ConstView take(Lane& lane, const Context& c, ConstView x) const {
    const View selected = selected_.of(c.workspace);
    return mean_ ? loss_rows_.select(lane, c, mean_->forward(lane, c, norm(lane, c, x)), selected)
                 : norm(lane, c, loss_rows_.select(lane, c, x, selected));
  }
  ConstView norm(Lane& lane, const Context& c, ConstView x) const {
    if (!norm_) return x;
    const View out = normed_.of(c.workspace);
    norm_->forward(lane, c.parameters, x, out, norm_mean_.of(c.workspace), rstd_.of(c.workspace),
                   no_bias_.of(c.workspace));
    return out;
  }
  void unnorm(Lane& lane, const Context& c, ConstView dy, ConstView x, View dx, const GradientRange& own) const {
    norm_->backward(lane, c.parameters, dy, x, norm_mean_.of(c.workspace), rstd_.of(c.workspace), {}, dx, own,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace));
  }
  ConstView norm_dense(Lane& lane, const Context& c, ConstView x) const {
    const View out = dense_normed_.of(c.workspace);
    dense_norm_->forward(lane, c.parameters, x, out, dense_mean_.of(c.workspace), dense_rstd_.of(c.workspace),
                         no_bias_.of(c.workspace));
    return out;
  }
  void unnorm_dense(Lane& lane, const Context& c, ConstView dy, ConstView x, View dx, const GradientRange& own) const {
    dense_norm_->backward(lane, c.parameters, dy, x, dense_mean_.of(c.workspace), dense_rstd_.of(c.workspace), {}, dx,
                          own, scratch_.of(c.workspace), no_bias_.of(c.workspace));
  }
  ConstView before_dense(Lane& lane, const Context& c, ConstView x) const {
    if (!dense_ || spec_.dropout_before == 0) return x;
    const View dropped = dropped_before_.of(c.workspace);
    dropout(lane, dropout_of(c, spec_.dropout_before, 0), x, {}, dropped);
    return dropped;
  }

  ClassHeadSpec spec_;
  DType dtype_;
  bool training_;
  std::size_t tokens_;
  LossRows loss_rows_;
  std::size_t rows_, normed_rows_;  // rows that enter the loss; rows of the final norm
  device::ClassScoreShape shape_;
  Product scores_, input_, weights_;
  std::optional<Linear> dense_;
  std::optional<DocumentMean> mean_;
  std::optional<NormPart> norm_, dense_norm_;
  std::size_t weight_ = 0, bias_ = 0;
  Slot scratch_, norm_mean_, rstd_, losses_, selected_, normed_, dropped_before_, inner_, active_, dropped_after_;
  Slot dense_mean_, dense_rstd_, dense_normed_, d_means_;
  Slot no_bias_;          // for norms without a bias
  Slot fp32_, d_scores_;  // the scores, and their gradient
  Slot one_, two_;        // gradients on their way to the input
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<LossUnit> make_class_head(const ClassHeadSpec& spec, const RunShape& run) {
  return std::make_unique<ClassHead>(spec, run);
}

}  // namespace strata::models

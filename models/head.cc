#include "models/head.h"

#include <algorithm>
#include <optional>

#include "device/ops/cross_entropy.h"
#include "device/ops/elementwise.h"
#include "device/ops/norm.h"
#include "device/ops/product.h"
#include "models/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::Product;
using device::ProductShape;
using device::View;

// fp32 logits that exist at once, at most: large enough for full-speed products, small beside a model.
constexpr std::size_t kLogitBytes = 64u << 20;
// A chunk is never smaller: the head's weights are read once per chunk.
constexpr std::size_t kMinRows = 64;

std::size_t chunk_rows(std::size_t tokens, std::size_t vocabulary) {
  const std::size_t most = std::max(kMinRows, kLogitBytes / sizeof(float) / vocabulary);
  const std::size_t chunks = (tokens + most - 1) / most;
  return (tokens + chunks - 1) / chunks;
}

// The three products of one chunk size.
struct ChunkProducts {
  ChunkProducts(std::size_t n_rows, const HeadSpec& spec, DType t)
      : rows(n_rows),
        logits(forward(static_cast<std::int64_t>(n_rows), spec, t)),
        input(backward_input(static_cast<std::int64_t>(n_rows), spec, t)),
        weights_first(backward_weights(static_cast<std::int64_t>(n_rows), spec, t, false)),
        weights_more(backward_weights(static_cast<std::int64_t>(n_rows), spec, t, true)) {}

  static ProductShape forward(std::int64_t rows, const HeadSpec& s, DType t) {
    const auto v = static_cast<std::int64_t>(s.vocabulary), d = static_cast<std::int64_t>(s.hidden);
    return {rows, v, d, false, true, d, d, v, t, DType::fp32, false, false};
  }
  // Gradients lie in the rows of the fp32 logits that they replace.
  static std::int64_t gradient_stride(const HeadSpec& s, DType t) {
    return static_cast<std::int64_t>(s.vocabulary * sizeof(float) / size_of(t));
  }
  static ProductShape backward_input(std::int64_t rows, const HeadSpec& s, DType t) {
    const auto v = static_cast<std::int64_t>(s.vocabulary), d = static_cast<std::int64_t>(s.hidden);
    return {rows, d, v, false, false, gradient_stride(s, t), d, d, t, t, false, false};
  }
  static ProductShape backward_weights(std::int64_t rows, const HeadSpec& s, DType t, bool accumulate) {
    const auto v = static_cast<std::int64_t>(s.vocabulary), d = static_cast<std::int64_t>(s.hidden);
    return {v, d, rows, true, false, gradient_stride(s, t), d, d, t, DType::fp32, false, accumulate};
  }
  std::size_t workspace(int threads) const {
    return std::max({logits.workspace_bytes(threads), input.workspace_bytes(threads),
                     weights_first.workspace_bytes(threads), weights_more.workspace_bytes(threads)});
  }

  std::size_t rows;
  Product logits, input, weights_first, weights_more;
};

class ChunkedHead final : public Head {
 public:
  ChunkedHead(const HeadSpec& spec, const RunShape& run)
      : Head("head"),
        spec_(spec),
        dtype_(run.dtype),
        tokens_(run.tokens()),
        norm_{tokens_, spec.hidden, 1, spec.hidden, spec.hidden, spec.eps},
        full_(chunk_rows(tokens_, spec.vocabulary), spec, run.dtype) {
    const auto d = static_cast<std::int64_t>(spec.hidden);
    add_parameter(spec.gain_name, {d}, false, {1, 0});
    if (!spec.bias_name.empty()) bias_ = add_parameter(spec.bias_name, {d}, false, {0, 0});
    if (!spec.weight_name.empty())
      weight_ = add_parameter(spec.weight_name, {static_cast<std::int64_t>(spec.vocabulary), d}, true, spec.init);
    if (const std::size_t rest = tokens_ % full_.rows) last_.emplace(rest, spec, run.dtype);

    std::size_t scratch = std::max(full_.workspace(run.threads), device::norm_backward_workspace(norm_));
    if (last_) scratch = std::max(scratch, last_->workspace(run.threads));
    Slots work;
    scratch_ = work.add_bytes(scratch);
    mean_ = work.add(tokens_, DType::fp32);
    rstd_ = work.add(tokens_, DType::fp32);
    losses_ = work.add(tokens_, DType::fp32);
    normed_ = work.add(tokens_ * spec.hidden, dtype_);
    d_normed_ = work.add(tokens_ * spec.hidden, dtype_);
    logits_ = work.add(full_.rows * spec.vocabulary, DType::fp32);
    // In fp32 the gradient buffer itself takes the sum over chunks.
    d_weight_ = work.add(dtype_ == DType::fp32 ? 0 : spec.vocabulary * spec.hidden, DType::fp32);
    workspace_bytes_ = work.bytes();
  }

  std::size_t loss_workspace() const override { return workspace_bytes_; }
  void list_products(std::vector<ProductShape>& out) const override {
    for (std::size_t row = 0; row < tokens_; row += full_.rows) {
      const ChunkProducts& p = row + full_.rows <= tokens_ ? full_ : *last_;
      for (const Product* product : {&p.logits, &p.input, row == 0 ? &p.weights_first : &p.weights_more})
        out.push_back(product->shape());
    }
  }

  void loss(Lane& lane, const Context& c, ConstView x, device::ExactSum* loss, View dx, View gradients,
            View tied_gradients) const override {
    const View scratch = scratch_.of(c.workspace), normed = normed_.of(c.workspace);
    const View mean = mean_.of(c.workspace), rstd = rstd_.of(c.workspace);
    const View d_normed = d_normed_.of(c.workspace), losses = losses_.of(c.workspace);
    const std::size_t d = spec_.hidden, table = spec_.vocabulary * d;
    const bool tied = spec_.weight_name.empty(), learn = static_cast<bool>(dx);
    const ConstView weight = tied ? c.tied.sub(0, table) : c.parameters.sub(weight_, table);
    const ConstView gain = c.parameters.sub(0, d);
    View d_gradient;
    if (learn) d_gradient = tied ? tied_gradients.sub(0, table) : gradients.sub(weight_, table);
    const View d_weight = dtype_ == DType::fp32 ? d_gradient : d_weight_.of(c.workspace);

    if (bias_)
      layernorm_forward(lane, norm_, x, gain, c.parameters.sub(bias_, d), normed, mean, rstd);
    else
      rmsnorm_forward(lane, norm_, x, gain, normed, rstd);

    for (std::size_t row = 0; row < tokens_; row += full_.rows) {
      const ChunkProducts& p = row + full_.rows <= tokens_ ? full_ : *last_;
      const View logits = logits_.of(c.workspace).sub(0, p.rows * spec_.vocabulary);
      const ConstView chunk = normed.sub(row * d, p.rows * d);
      p.logits.run(lane, chunk, weight, {}, logits, scratch);
      cross_entropy(lane, p.rows, spec_.vocabulary, logits, c.batch.labels + row, learn ? c.scalars : nullptr, dtype_,
                    losses.sub(row, p.rows));
      if (!learn) continue;
      const ConstView d_logits{logits.data, logits.bytes() / size_of(dtype_), dtype_};
      p.input.run(lane, d_logits, weight, {}, d_normed.sub(row * d, p.rows * d), scratch);
      (row == 0 ? p.weights_first : p.weights_more).run(lane, d_logits, chunk, {}, d_weight, scratch);
    }
    sum_losses(lane, losses, loss);
    if (!learn) return;

    if (dtype_ != DType::fp32) cast(lane, d_weight, d_gradient);
    if (tied && tied_gradients.size > table) zero(lane, tied_gradients.sub(table, tied_gradients.size - table));
    if (bias_)
      layernorm_backward(lane, norm_, d_normed, x, gain, mean, rstd, {}, dx, gradients.sub(0, d),
                         gradients.sub(bias_, d), scratch);
    else
      rmsnorm_backward(lane, norm_, d_normed, x, gain, rstd, {}, dx, gradients.sub(0, d), scratch);
  }

 private:
  HeadSpec spec_;
  DType dtype_;
  std::size_t tokens_;
  device::NormShape norm_;
  ChunkProducts full_;
  std::optional<ChunkProducts> last_;
  std::size_t bias_ = 0, weight_ = 0;
  Slot scratch_, mean_, rstd_, losses_, normed_, d_normed_, logits_, d_weight_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Head> make_head(const HeadSpec& spec, const RunShape& run) {
  return std::make_unique<ChunkedHead>(spec, run);
}

}  // namespace strata::models

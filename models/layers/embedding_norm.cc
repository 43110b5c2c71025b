#include "models/layers/embedding_norm.h"

#include <optional>

#include "device/ops/dropout.h"
#include "models/layers/norm_part.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

class EmbeddingNorm final : public Unit {
 public:
  EmbeddingNorm(const EmbeddingNormSpec& spec, const RunShape& run)
      : Unit("embedding norm"), spec_(spec), activation_(run.tokens() * spec.hidden * size_of(run.dtype)) {
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden);
    const std::size_t gain = add_parameter(spec.name + ".weight", {d}, false, {1, 0});
    const std::size_t bias = spec.bias ? add_parameter(spec.name + ".bias", {d}, false, {0, 0}) : 0;
    end_part();
    norm_.emplace(spec.bias ? NormKind::layer : NormKind::layer_without_bias,
                  norm_of_rows(run.tokens(), spec.hidden, spec.eps), gain, bias);
    Slots save, work;
    mean_ = save.add(run.tokens(), DType::fp32);
    rstd_ = save.add(run.tokens(), DType::fp32);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(norm_->scratch_bytes());
    d_normed_ = work.add(run.tokens() * spec.hidden, run.dtype);
    no_bias_ = work.add(spec.bias ? 0 : spec.hidden, run.dtype);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass pass, const PartRange& parts) const override {
    const double passes = (pass == Pass::forward ? 2 : 3) + (spec_.dropout > 0 ? 2 : 0);
    return {.bytes = share_of(passes * static_cast<double>(activation_), parts)};
  }

  void forward(Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    // Without y, the norm still writes its statistics.
    norm_->forward(lane, c.parameters, x, y ? y : d_normed_.of(c.workspace), mean_.of(saved), rstd_.of(saved),
                   no_bias_.of(c.workspace));
    if (y && spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const View d_normed = d_normed_.of(c.workspace);
    dropout(lane, dropout_of(c), dy, {}, d_normed);  // a copy if nothing is dropped: dx may be dy
    norm_->backward(lane, c.parameters, d_normed, x, mean_.of(saved), rstd_.of(saved), {}, dx, gradients,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace));
  }

 private:
  // Uses the site of the embedding's own dropout, which a model with this unit does not have.
  device::Dropout dropout_of(const Context& c) const { return {spec_.dropout, 0, c.micro_batch, c.scalars}; }

  EmbeddingNormSpec spec_;
  std::size_t activation_;
  std::optional<NormPart> norm_;
  Slot mean_, rstd_;                   // saved
  Slot scratch_, d_normed_, no_bias_;  // workspace
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run) {
  return std::make_unique<EmbeddingNorm>(spec, run);
}

}  // namespace strata::models

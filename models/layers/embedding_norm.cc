#include "models/layers/embedding_norm.h"

#include <optional>
#include <vector>

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
      : Unit("embedding norm", {.own_rows = true}),
        spec_(spec),
        rows_(run.own_rows()),
        activation_(rows_.size() * spec.hidden * size_of(run.dtype)) {
    freeze(run.freeze, run.adapter);
    const auto d = static_cast<std::int64_t>(spec.hidden);
    const std::size_t gain = add_parameter(spec.name + ".weight", {d}, false, {1, 0});
    const std::size_t bias = spec.bias ? add_parameter(spec.name + ".bias", {d}, false, {0, 0}) : 0;
    end_part();
    norm_.emplace(spec.bias ? NormKind::layer : NormKind::layer_without_bias,
                  norm_of_rows(rows_.size(), spec.hidden, spec.eps), gain, bias, run.row_blocks());
    Slots save, work;
    mean_ = save.add(rows_.size(), DType::fp32);
    rstd_ = save.add(rows_.size(), DType::fp32);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(norm_->scratch_bytes());
    d_normed_ = work.add(rows_.size() * spec.hidden, run.dtype);
    no_bias_ = work.add(spec.bias ? 0 : spec.hidden, run.dtype);
    sums_ = work.add(norm_->sums(), DType::fp32);
    bytes_.forward_workspace = bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  Work work(Pass pass, const PartRange& parts) const override {
    const double passes = (pass == Pass::forward ? 2 : 3) + (spec_.dropout > 0 ? 2 : 0);
    return {.bytes = share_of(passes * static_cast<double>(activation_), parts)};
  }

  // If each rank has some of the rows, the gradients of gain and bias.
  std::vector<Seam> seams(Pass pass, bool) const override {
    if (pass == Pass::forward || norm_->crossing() == 0) return {};
    return {{.elements = norm_->crossing()}};
  }

  void forward(Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    // Without y, the norm still writes its statistics.
    norm_->forward(lane, c.parameters, x, y ? y : d_normed_.of(c.workspace), mean_.of(saved), rstd_.of(saved),
                   no_bias_.of(c.workspace));
    if (y && spec_.dropout > 0) dropout(lane, dropout_of(c), y, {}, y);
  }

  void backward(Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    if (c.stretch == 1) return norm_->take_gradients(lane, c.total, gradients);
    const View d_normed = d_normed_.of(c.workspace);
    dropout(lane, dropout_of(c), dy, {}, d_normed);  // a copy if nothing is dropped: dx may be dy
    norm_->backward(lane, c.parameters, d_normed, x, mean_.of(saved), rstd_.of(saved), {}, dx, gradients,
                    scratch_.of(c.workspace), no_bias_.of(c.workspace), sums_.of(c.workspace));
    if (c.partial) norm_->leave_gradients(lane, sums_.of(c.workspace), c.partial);
  }

 private:
  // Uses the site of the embedding's own dropout, which a model with this unit does not have.
  device::Dropout dropout_of(const Context& c) const {
    return {spec_.dropout, 0, c.micro_batch, c.scalars, rows_.begin * spec_.hidden};
  }

  EmbeddingNormSpec spec_;
  ElementRange rows_;
  std::size_t activation_;
  std::optional<NormPart> norm_;
  Slot mean_, rstd_;                          // saved
  Slot scratch_, d_normed_, no_bias_, sums_;  // workspace
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_embedding_norm(const EmbeddingNormSpec& spec, const RunShape& run) {
  return std::make_unique<EmbeddingNorm>(spec, run);
}

}  // namespace strata::models

#include "models/layers/prediction_transform.h"

#include "device/ops/activation.h"
#include "models/layers/linear.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::Lane;
using device::View;

class PredictionTransform final : public Unit {
 public:
  PredictionTransform(const PredictionTransformSpec& spec, const RunShape& run)
      : Unit("prediction transform"), activation_(run.tokens() * spec.hidden * size_of(run.dtype)), dense_([&] {
          const auto d = static_cast<std::int64_t>(spec.hidden);
          const std::size_t weight = add_parameter(spec.name + ".weight", {d, d}, true, {0, spec.deviation});
          const std::size_t bias = add_parameter(spec.name + ".bias", {d}, false, {0, 0});
          end_part();
          return Linear({run.tokens(), spec.hidden, {{spec.hidden, weight, bias}}, true, false, run.dtype, run.device});
        }()) {
    Slots save, work;
    inner_ = save.add(run.tokens() * spec.hidden, run.dtype);
    bytes_.saved = save.bytes();
    scratch_ = work.add_bytes(dense_.scratch_bytes(run.threads));
    bytes_.forward_workspace = work.bytes();
    d_inner_ = work.add(run.tokens() * spec.hidden, run.dtype);
    bytes_.backward_workspace = work.bytes();
  }

  UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>& out) const override { dense_.list_products(out); }
  Work work(Pass pass, const ElementRange& elements) const override {
    const double calls = pass == Pass::forward ? 1 : 2;
    return {.flops = share_of(calls * dense_.forward_flops(), elements),
            .bytes = share_of(2 * calls * static_cast<double>(activation_), elements)};
  }

  void forward(Lane& lane, const Context& c, std::size_t, ConstView x, View y, View saved) const override {
    dense_.forward(lane, c.parameters, x, inner_.of(saved), scratch_.of(c.workspace));
    if (y) gelu_erf_forward(lane, inner_.of(saved), y);
  }

  void backward(Lane& lane, const Context& c, std::size_t, ConstView x, ConstView saved, ConstView dy, View dx,
                const GradientRange& gradients) const override {
    const View d_inner = d_inner_.of(c.workspace), scratch = scratch_.of(c.workspace);
    gelu_erf_backward(lane, dy, inner_.of(saved), d_inner);
    dense_.backward_parameters(lane, x, d_inner, gradients, scratch);
    dense_.backward_input(lane, c.parameters, d_inner, dx, scratch);
  }

 private:
  std::size_t activation_;
  Linear dense_;
  Slot inner_;              // saved
  Slot scratch_, d_inner_;  // workspace
  UnitBytes bytes_;
};

}  // namespace

std::unique_ptr<Unit> make_prediction_transform(const PredictionTransformSpec& spec, const RunShape& run) {
  return std::make_unique<PredictionTransform>(spec, run);
}

}  // namespace strata::models

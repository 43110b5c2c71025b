#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"
#include "tests/runtime/plan_case.h"

namespace strata::runtime {

// The arguments of a call of a unit.
struct ProbedCall {
  std::string what;  // "forward", "backward", "loss", "logits", "norm", "statistics", "gradients", "finish"
  std::size_t part = 0;
  models::Context context{};
  device::ConstView x{}, saved{}, dy{};
  device::View y{}, dx{};  // y, or logits
  models::GradientRange gradients{};
  bool adds_loss = false;
};
using Probed = std::vector<ProbedCall>;

// Gives every parameter of these elements the gradient 1, and leaves the gaps unchanged.
inline void teach(std::span<const models::Parameter> parameters, const models::GradientRange& gradients) {
  auto* values = gradients.values.as<float>();
  const std::size_t begin = gradients.begin, end = begin + gradients.values.size;
  for (const models::Parameter& p : parameters)
    for (std::size_t i = std::max(p.offset, begin); i < std::min(p.offset + p.size(), end); ++i) values[i - begin] = 1;
}

// A unit that outputs `value` and records its calls.
class ProbeUnit final : public models::Unit {
 public:
  ProbeUnit(const std::string& name, models::Ports ports, models::UnitBytes bytes, Probed& calls, const float& value)
      : Unit(name, ports), bytes_(bytes), calls_(calls), value_(value) {
    for (const std::int64_t n : {5000, 300}) {
      add_parameter(name + "." + std::to_string(n), {n}, false, {});
      end_part();
    }
  }
  models::UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  models::Work work(models::Pass pass, const models::PartRange& of) const override {
    const auto n = static_cast<double>(parts()[of.last - 1].end - parts()[of.first].begin);
    return {.flops = pass == models::Pass::forward ? n : 2 * n, .attention_flops = 3, .bytes = 4};
  }
  void forward(device::Lane&, const models::Context& c, std::size_t part, device::ConstView x, device::View y,
               device::View saved) const override {
    calls_.push_back({.what = "forward", .part = part, .context = c, .x = x, .saved = saved, .y = y});
    if (y) std::fill_n(y.as<float>(), y.size, value_);
  }
  void backward(device::Lane&, const models::Context& c, std::size_t part, device::ConstView x, device::ConstView saved,
                device::ConstView dy, device::View dx, const models::GradientRange& gradients) const override {
    calls_.push_back({"backward", part, c, x, saved, dy, {}, dx, gradients});
    teach(parameters(), gradients);
  }

 private:
  models::UnitBytes bytes_;
  Probed& calls_;
  const float& value_;
};

// Shares the first unit's first tensor, whose parts are its tiles. The loss is 1.5, and the gradient `value`.
class ProbeHead final : public models::LossUnit {
 public:
  ProbeHead(std::optional<models::SharedParameter> shared, Probed& calls, const float& value)
      : LossUnit("head"), calls_(calls), value_(value) {
    add_parameter("head.norm", {300}, false, {});
    end_part();
    use(std::move(shared));
  }
  std::size_t loss_workspace() const override { return 4096; }
  std::size_t tiled_loss_workspace() const override { return 4096; }
  std::size_t table_tiles() const override { return 1; }
  std::size_t classes() const override { return 3; }
  std::size_t score_stride() const override { return 16; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  models::Work loss_work(bool learns) const override { return {.flops = learns ? 30.0 : 10.0}; }
  models::Work step_work(models::LossStep, std::size_t elements) const override {
    return {.flops = static_cast<double>(elements)};
  }
  void loss(device::Lane&, const models::Context& c, device::ConstView x, device::ExactSum* loss, device::View dx,
            device::View gradients) const override {
    calls_.push_back({.what = "loss", .context = c, .x = x, .dx = dx, .gradients = {gradients}, .adds_loss = true});
    loss->add(1.5);
    if (!dx) return;
    std::fill_n(dx.as<float>(), dx.size, value_);
    teach(parameters(), {gradients});
  }
  void logits(device::Lane&, const models::Context& c, device::ConstView x, device::View logits) const override {
    calls_.push_back({.what = "logits", .context = c, .x = x, .y = logits});
  }
  void loss_step(device::Lane&, const models::Context& c, models::LossStep step, std::size_t tile, device::ConstView x,
                 device::ExactSum* loss, device::View dx, const models::GradientRange& gradients) const override {
    static constexpr const char* kSteps[] = {"norm", "statistics", "gradients", "finish"};
    calls_.push_back({.what = kSteps[static_cast<std::size_t>(step)],
                      .part = tile,
                      .context = c,
                      .x = x,
                      .dx = dx,
                      .gradients = gradients,
                      .adds_loss = loss != nullptr});
    if (loss) loss->add(1.5);
    if (dx) std::fill_n(dx.as<float>(), dx.size, value_);
    if (step == models::LossStep::finish) teach(parameters(), gradients);
  }

 private:
  Probed& calls_;
  const float& value_;
};

// An embedding, a block and a head that record their calls in `calls` and output `value`.
class ProbeModel final : public models::Model {
 public:
  explicit ProbeModel(const models::RunShape& run) {
    family = "probe";
    vocabulary = 50;
    hidden = 32;
    max_positions = 128;
    heads = head_dim = 1;
    batch.tokens = run.tokens();
    units.push_back(std::make_unique<ProbeUnit>(
        "embedding", models::Ports{.input = false, .output_by_parts = true, .parameters_in_backward = false},
        models::UnitBytes{.backward_workspace = 4096}, calls, value));
    units.push_back(
        std::make_unique<ProbeUnit>("block", models::Ports{}, models::UnitBytes{8192, 4096, 8192}, calls, value));
    units.push_back(std::make_unique<ProbeHead>(models::share("head.table", units, 0, 0), calls, value));
  }
  void fill_constants(std::byte*) const override {}

  mutable Probed calls;
  float value = 1;
};

// A request for this model in fp32: 2 ranks, 3 micro-batches of 2 x 16 tokens.
struct ProbeCase {
  explicit ProbeCase(bool forward_only = false) {
    request = {&model, shape, Mesh{2}, 3, stage(0)};
    request.forward_only = forward_only;
  }

  models::RunShape shape{2, 16, device::DType::fp32, 1};
  ProbeModel model{shape};
  PlanRequest request;
};
inline constexpr std::size_t kProbeActivations = 2 * 16 * 32;

}  // namespace strata::runtime

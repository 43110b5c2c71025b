#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/model.h"

namespace strata::runtime {

// Unit `unit` uses parameter `parameter` of unit `holder`.
struct FakeShare {
  std::size_t unit, holder, parameter;
};

// Units that have sizes but no mathematics, as the planner sees a model. The first has no input, and the last ends in a
// loss.
struct FakeSizes {
  std::vector<std::vector<std::int64_t>> parameters;  // per unit: lengths of its tensors
  std::size_t saved, forward_workspace, backward_workspace, loss_workspace;
  bool tied;                           // the loss shares the first unit's table, and can go over it by tiles
  std::vector<FakeShare> shares = {};  // besides
  models::Ports first = {.input = false, .output_by_parts = true, .parameters_in_backward = false};
};

// The model for micro-batches of 2 x 16 tokens.
inline constexpr std::size_t kFakeTokens = 32, kFakeVocabulary = 64, kFakeHidden = 32;

class FakeUnit final : public models::Unit {
 public:
  FakeUnit(std::string name, const std::vector<std::int64_t>& lengths, models::UnitBytes bytes, models::Ports ports,
           std::optional<models::SharedParameter> shared)
      : Unit(std::move(name), ports), bytes_(bytes) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      add_parameter(this->name() + "." + std::to_string(i), {lengths[i]}, i % 2 == 0, {}, !ports.input);
      end_part();
    }
    use(std::move(shared));
  }
  models::UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  models::Work work(models::Pass pass, const models::PartRange& parts) const override {
    const double attention = ports().input ? 2.0 * kFakeTokens * 16 * kFakeHidden : 0;
    const auto bytes = static_cast<double>(bytes_.saved + 4 * kFakeTokens * kFakeHidden);
    return {0, share_of(pass == models::Pass::forward ? attention : 2.5 * attention, parts), share_of(bytes, parts)};
  }
  void forward(device::Lane&, const models::Context&, std::size_t, device::ConstView, device::View,
               device::View) const override {}
  void backward(device::Lane&, const models::Context&, std::size_t, device::ConstView, device::ConstView,
                device::ConstView, device::View, const models::GradientRange&) const override {}

 private:
  models::UnitBytes bytes_;
};

class FakeHead final : public models::LossUnit {
 public:
  // `tiles`: parts of the shared table. Without `shared` they are its own tensors after the first. If `by_tiles` is
  // false, the loss has no steps.
  FakeHead(const std::vector<std::int64_t>& lengths, std::size_t workspace,
           std::optional<models::SharedParameter> shared, std::size_t tiles, bool by_tiles)
      : LossUnit("head"), workspace_(workspace) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      add_parameter("head." + std::to_string(i), {lengths[i]}, false, {});
      if (!shared) end_part();
    }
    end_part();
    tiles_ = !by_tiles ? 0 : shared ? tiles : parts().size() - 1;
    use(std::move(shared));
  }
  std::size_t loss_workspace() const override { return workspace_; }
  std::size_t table_tiles() const override { return tiles_; }
  std::size_t tiled_loss_workspace() const override { return workspace_ / 2; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  models::Work loss_work(bool learns) const override { return all_of(learns ? 3 : 1, kFakeVocabulary * kFakeHidden); }
  models::Work step_work(models::LossStep step, std::size_t elements) const override {
    return all_of(step == models::LossStep::gradients ? 3 : 1, elements);
  }
  void loss(device::Lane&, const models::Context&, device::ConstView, device::ExactSum*, device::View,
            device::View) const override {}
  void loss_step(device::Lane&, const models::Context&, models::LossStep, std::size_t, device::ConstView,
                 device::ExactSum*, device::View, const models::GradientRange&) const override {}

 private:
  static models::Work all_of(double products, std::size_t elements) {
    const auto n = static_cast<double>(kFakeTokens * elements);
    return {.flops = products * 2 * n, .bytes = products * 4 * n / kFakeHidden};
  }

  std::size_t workspace_, tiles_ = 0;
};

class FakeModel final : public models::Model {
 public:
  explicit FakeModel(const FakeSizes& sizes) {
    family = "fake";
    vocabulary = kFakeVocabulary;
    hidden = kFakeHidden;
    max_positions = 128;
    heads = 1;
    head_dim = 32;
    const std::size_t n = sizes.parameters.size();
    const auto shared_by = [&](std::size_t unit) -> std::optional<models::SharedParameter> {
      for (const FakeShare& s : sizes.shares)
        if (s.unit == unit) return models::share("shared", units, s.holder, s.parameter);
      return std::nullopt;
    };
    for (std::size_t u = 0; u + 1 < n; ++u)
      units.push_back(std::make_unique<FakeUnit>(
          u == 0 ? "embedding" : "block " + std::to_string(u - 1), sizes.parameters[u],
          models::UnitBytes{u == 0 ? 0 : sizes.saved, sizes.forward_workspace, sizes.backward_workspace},
          u == 0 ? sizes.first : models::Ports{}, shared_by(u)));
    auto shared = shared_by(n - 1);
    const bool by_tiles = sizes.tied || !shared;
    std::size_t tiles = 0;
    if (sizes.tied) {  // the table, which may be several tensors
      constexpr std::size_t kTable = kFakeVocabulary * kFakeHidden;
      for (const models::Part& part : units[0]->parts()) tiles += part.begin < kTable ? 1 : 0;
      shared = models::share("head.table", units, 0, 0);
      shared->elements.end = (kTable + 4095) / 4096 * 4096;
    }
    units.push_back(
        std::make_unique<FakeHead>(sizes.parameters.back(), sizes.loss_workspace, std::move(shared), tiles, by_tiles));
  }
  void fill_constants(std::byte*) const override {}
};

}  // namespace strata::runtime

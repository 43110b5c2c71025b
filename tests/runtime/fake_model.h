#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace strata::runtime {

// Units that have sizes and no mathematics: what the planner sees of a model.
struct FakeSizes {
  std::vector<std::vector<std::int64_t>> parameters;  // per unit: lengths of its tensors
  std::size_t saved, forward_workspace, backward_workspace, loss_workspace;
  bool tied;
};

class FakeUnit final : public models::Unit {
 public:
  FakeUnit(std::string name, const std::vector<std::int64_t>& lengths, models::UnitBytes bytes)
      : Unit(std::move(name)), bytes_(bytes) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      add_parameter(this->name() + "." + std::to_string(i), {lengths[i]}, i % 2 == 0, {});
      end_part();
    }
  }
  models::UnitBytes bytes() const override { return bytes_; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  void forward(device::Lane&, const models::Context&, std::size_t, device::ConstView, device::View,
               device::View) const override {}
  void backward(device::Lane&, const models::Context&, std::size_t, device::ConstView, device::ConstView,
                device::ConstView, device::View, const models::GradientRange&) const override {}

 private:
  models::UnitBytes bytes_;
};

class FakeHead final : public models::Head {
 public:
  FakeHead(const std::vector<std::int64_t>& lengths, std::size_t workspace, bool tied)
      : Head("head"), workspace_(workspace) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      add_parameter("head." + std::to_string(i), {lengths[i]}, false, {});
      if (!tied) end_part();
    }
    end_part();
  }
  std::size_t loss_workspace() const override { return workspace_; }
  std::size_t tiled_loss_workspace() const override { return workspace_ / 2; }
  void list_products(std::vector<device::ProductShape>&) const override {}
  void loss(device::Lane&, const models::Context&, device::ConstView, device::ExactSum*, device::View, device::View,
            device::View) const override {}
  void loss_step(device::Lane&, const models::Context&, models::LossStep, std::size_t, device::ConstView,
                 device::ExactSum*, device::View, const models::GradientRange&) const override {}

 private:
  std::size_t workspace_;
};

class FakeModel final : public models::Model {
 public:
  explicit FakeModel(const FakeSizes& sizes) {
    family = "fake";
    vocabulary = 64;
    hidden = 32;
    max_positions = 128;
    heads = 1;
    head_dim = 32;
    const std::size_t n = sizes.parameters.size();
    layers = n - 2;
    for (std::size_t u = 0; u + 1 < n; ++u)
      units.push_back(std::make_unique<FakeUnit>(
          u == 0 ? "embedding" : "block " + std::to_string(u - 1), sizes.parameters[u],
          models::UnitBytes{u == 0 ? 0 : sizes.saved, sizes.forward_workspace, sizes.backward_workspace}));
    units.push_back(std::make_unique<FakeHead>(sizes.parameters.back(), sizes.loss_workspace, sizes.tied));
    if (sizes.tied) tied_size = (vocabulary * hidden + 4095) / 4096 * 4096;
  }
  void fill_constants(std::byte*) const override {}
};

}  // namespace strata::runtime

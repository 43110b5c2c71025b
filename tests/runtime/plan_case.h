#pragma once
#include <array>
#include <limits>
#include <memory>

#include "runtime/planner/planner.h"
#include "tests/runtime/fake_model.h"

namespace strata::runtime {

inline constexpr std::array<std::size_t, kTiers> kUnlimited = {std::numeric_limits<std::size_t>::max(),
                                                               std::numeric_limits<std::size_t>::max(),
                                                               std::numeric_limits<std::size_t>::max()};

inline Placement stage(int n) {
  Recipe::Zero zero;
  zero.stage = n;
  return placement_of(zero);
}

// A model without arithmetic and a request to plan its step.
struct PlanCase {
  std::unique_ptr<FakeModel> model;
  PlanRequest request;
};

inline PlanCase make_case(const FakeSizes& sizes, int ranks, int accumulation, int zero_stage, device::DType dtype,
                          bool fast, bool vertical, int prefetch, const Recompute& recompute) {
  PlanCase c{std::make_unique<FakeModel>(sizes), {}};
  c.request = {c.model.get(), {2, 16, dtype, 1}, Mesh{ranks}, accumulation, stage(zero_stage)};
  c.model->batch.tokens = c.request.shape.tokens();
  c.request.fast = fast;
  c.request.vertical = vertical;
  c.request.prefetch = prefetch;
  c.request.segments = segments_of(recompute, *c.model);
  return c;
}

inline FakeSizes small(bool tied) {
  return {{{2048, 300}, {5000, 256, 9000}, {5000, 256, 9000}, {5000, 256, 9000}, {256, 5000}},
          30000,
          10000,
          20000,
          60000,
          tied};
}

// The first unit has several chunks of updates.
inline FakeSizes large_first() {
  FakeSizes sizes = small(false);
  sizes.parameters[0] = {40000, 300};
  return sizes;
}

}  // namespace strata::runtime

#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "tests/models/reference.h"
#include "tests/models/unit_runner.h"

// Checks that apply to the block of any family.
namespace strata::models::testing {

// A block in double precision: y from its parameters (names without the block's prefix) and x.
using BlockReference = std::function<Doubles(const Weights&, const Doubles& x)>;

// Checks y, dx and all parameter gradients of an fp32 block against the reference. The loss is sum(dy * y). Its
// derivative along a random direction is a central difference of the reference, exact to about 1e-9 with steps of 1e-5.
// The rest is the block's own fp32: a dozen operations in a row, each off by a few 2^-24 of its operands, add up to
// some 1e-6 of a tensor's norm. A larger error in any element shows in almost every direction.
// `unmoved`: a parameter whose true gradient is 0, if any. Its computed gradient is a rounding error, smaller than that
// of the largest gradient.
inline void expect_block_matches(UnitRunner& block, const std::string& prefix, const BlockReference& reference,
                                 const std::string& unmoved = {}) {
  constexpr double kTolerance = 5e-6, kStep = 1e-5;
  block.forward();
  block.backward();
  const Weights weights = block.weights(prefix);
  const Doubles x = block.x.doubles(), dy = block.dy.doubles(), y = reference(weights, x);
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(block.y[i], y[i], kTolerance * largest_of(y)) << "y, element " << i;

  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  const auto expect_gradient = [&](const std::string& name, const Doubles& gradient, auto&& with) {
    for (int direction = 0; direction < 2; ++direction) {
      Doubles along(gradient.size());
      for (double& a : along) a = normal(random);
      const double slope = (dot(dy, with(along, kStep)) - dot(dy, with(along, -kStep))) / (2 * kStep);
      EXPECT_NEAR(dot(gradient, along), slope, kTolerance * norm_of(gradient)) << "the gradient of " << name;
    }
  };
  const auto moved = [](Doubles from, const Doubles& along, double step) {
    for (std::size_t i = 0; i < from.size(); ++i) from[i] += step * along[i];
    return from;
  };
  expect_gradient("x", block.dx.doubles(),
                  [&](const Doubles& along, double step) { return reference(weights, moved(x, along, step)); });
  double largest = 0;
  for (const auto& [name, values] : weights)
    largest = std::max(largest, norm_of(block.tensor(block.gradients, prefix + name)));
  for (const auto& [name, values] : weights) {
    if (name == unmoved) {
      EXPECT_LT(norm_of(block.tensor(block.gradients, prefix + name)), kTolerance * largest) << name;
      continue;
    }
    expect_gradient(name, block.tensor(block.gradients, prefix + name), [&](const Doubles& along, double step) {
      Weights others = weights;
      others[name] = moved(values, along, step);
      return reference(others, x);
    });
  }
}

// A plan's choices must not change bits: recomputing instead of keeping, dx in dy's memory, one part at a time,
// threads. `make(threads)` prepares the same block with the same operands.
template <typename Make>
void expect_block_is_independent_of_the_plan(Make&& make) {
  auto one = make(1);
  one->forward();
  const auto y = one->y.bits(), saved = one->saved.bits();
  one->backward();
  const auto dx = one->dx.bits(), gradients = one->gradients.bits();
  one->recompute();
  EXPECT_TRUE(one->saved.bits() == saved) << "recomputing fills `saved` differently";
  one->backward(true);
  EXPECT_TRUE(one->dx.bits() == dx) << "dx in place of dy";
  EXPECT_TRUE(one->gradients.bits() == gradients);

  one->by_parts = true;
  one->forward();
  EXPECT_TRUE(one->y.bits() == y && one->saved.bits() == saved) << "part by part";
  one->recompute();
  EXPECT_TRUE(one->saved.bits() == saved) << "recomputed part by part";
  one->backward(true);
  EXPECT_TRUE(one->dx.bits() == dx && one->gradients.bits() == gradients) << "part by part";

  auto three = make(3);
  three->forward();
  EXPECT_TRUE(three->y.bits() == y) << "three threads";
  EXPECT_TRUE(three->saved.bits() == saved) << "three threads";
  three->backward();
  EXPECT_TRUE(three->dx.bits() == dx) << "three threads";
  EXPECT_TRUE(three->gradients.bits() == gradients) << "three threads";
}

// The same block and values in `narrow`'s 16-bit format and in fp32. Each tensor differs by at most `units` half units
// in the last place of its norm, because each operation before it rounds its result.
inline void expect_block_within_format(UnitRunner& narrow, UnitRunner& wide, DType dtype, double units,
                                       const std::string& unmoved = {}) {
  const double half_unit = dtype == DType::bf16 ? 0x1p-9 : 0x1p-12;
  for (std::size_t i = 0; i < narrow.parameters.size(); ++i)
    if (!narrow.parameters.is_untouched(i)) wide.parameters.set(i, narrow.parameters[i]);
  for (std::size_t i = 0; i < narrow.x.size(); ++i) wide.x.set(i, narrow.x[i]);
  for (std::size_t i = 0; i < narrow.dy.size(); ++i) wide.dy.set(i, narrow.dy[i]);
  for (UnitRunner* block : {&narrow, &wide}) {
    block->forward();
    block->backward();
  }
  EXPECT_LT(relative_error(narrow.y.doubles(), wide.y.doubles()), units * half_unit) << "y";
  EXPECT_LT(relative_error(narrow.dx.doubles(), wide.dx.doubles()), units * half_unit) << "dx";
  for (const auto& [name, values] : narrow.weights("")) {
    if (name == unmoved) continue;
    EXPECT_LT(relative_error(narrow.tensor(narrow.gradients, name), wide.tensor(wide.gradients, name)),
              units * half_unit)
        << "the gradient of " << name;
  }
}

}  // namespace strata::models::testing

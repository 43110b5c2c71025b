#include "models/layers/low_rank_products.h"

#include <algorithm>

#include "device/ops/dropout.h"
#include "device/ops/elementwise.h"
#include "device/ops/products/matvec.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::Product;
using device::ProductShape;
using device::View;

// The matrix that begins at `column`.
template <typename AnyView>
AnyView from(AnyView matrix, std::size_t column) {
  return matrix.sub(column, matrix.size - column);
}

double flops_of(const Product& product) {
  const ProductShape& s = product.shape();
  return 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

}  // namespace

LowRankProducts::LowRankProducts(const Spec& spec, std::span<const Target> targets) : spec_(spec) {
  struct Run {
    std::size_t a, rank;
    float scale;
    std::vector<Target> targets;
  };
  std::vector<Run> runs;
  for (const Target& target : targets) {
    const LowRank& at = target.at;
    if (at.rank == 0) continue;
    if (runs.empty() || runs.back().a + runs.back().rank * spec.in != at.a || runs.back().scale != at.scale)
      runs.push_back({at.a, 0, at.scale, {}});
    runs.back().rank += at.rank;
    runs.back().targets.push_back(target);
  }
  const auto rows = static_cast<std::int64_t>(spec.rows), in = static_cast<std::int64_t>(spec.in);
  const auto all = static_cast<std::int64_t>(spec.out);
  const DType t = spec.dtype;
  const auto make = [&](const ProductShape& shape) { return Product(spec.device, shape); };
  for (const Run& run : runs) {
    const auto r = static_cast<std::int64_t>(run.rank);
    Group& group =
        groups_.emplace_back(Group{run.a,
                                   run.rank,
                                   columns_ * spec.rows,
                                   run.scale,
                                   make({rows, r, in, false, true, in, in, r, t, t}),
                                   make({r, in, rows, true, false, r, in, in, t, t}),
                                   make({rows, in, r, false, false, r, in, in, t, spec.input_sum, false, true}),
                                   {}});
    columns_ += run.rank;
    std::size_t first = 0;
    for (const Target& target : run.targets) {
      const auto n = static_cast<std::int64_t>(target.out), k = static_cast<std::int64_t>(target.at.rank);
      group.members.push_back({target, first, make({rows, n, k, false, true, r, k, all, t, t, false, true}),
                               make({n, k, rows, true, false, all, r, k, t, t}),
                               make({rows, k, n, false, false, all, k, r, t, t})});
      first += target.at.rank;
    }
  }
}

std::size_t LowRankProducts::kept_bytes() const {
  // x A^T and s dy B; one row also needs what it adds to y.
  const std::size_t elements = 2 * columns_ * spec_.rows + (spec_.rows == 1 && !empty() ? spec_.out : 0);
  return (elements * size_of(spec_.dtype) + 63) / 64 * 64;
}

std::size_t LowRankProducts::scratch_bytes(int threads) const {
  std::size_t most = 0;
  for (const Group& g : groups_) {
    for (const Product* product : {&g.down, &g.d_a, &g.input}) most = std::max(most, product->workspace_bytes(threads));
    for (const Member& m : g.members)
      for (const Product* product : {&m.up, &m.d_b, &m.d_down})
        most = std::max(most, product->workspace_bytes(threads));
  }
  return most;
}

double LowRankProducts::forward_flops() const {
  double flops = 0;
  for (const Group& g : groups_) {
    flops += flops_of(g.down);
    for (const Member& m : g.members) flops += flops_of(m.up);
  }
  return flops;
}

double LowRankProducts::backward_flops() const {
  double flops = 0;
  for (const Group& g : groups_) {
    flops += flops_of(g.down) + flops_of(g.d_a) + flops_of(g.input);
    for (const Member& m : g.members) flops += flops_of(m.d_b) + flops_of(m.d_down);
  }
  return flops;
}

void LowRankProducts::list_products(std::vector<ProductShape>& out) const {
  for (const Group& g : groups_) {
    for (const Product* product : {&g.down, &g.down, &g.d_a, &g.input}) out.push_back(product->shape());
    for (const Member& m : g.members)
      for (const Product* product : {&m.up, &m.d_b, &m.d_down}) out.push_back(product->shape());
  }
}

View LowRankProducts::thin(const Group& group, View kept, bool gradient) const {
  const View all{kept.data, 2 * columns_ * spec_.rows, spec_.dtype};
  return all.sub(group.offset + (gradient ? columns_ * spec_.rows : 0), spec_.rows * group.rank);
}

// s x A^T, so that neither B's product nor its gradient has to be scaled.
void LowRankProducts::run_down(Lane& lane, const Group& g, const ParameterRange& parameters, ConstView x, View thin,
                               View scratch) const {
  g.down.run(lane, x, parameters.sub(g.a, g.rank * spec_.in), {}, thin, scratch);
  if (g.scale != 1) scale(lane, thin, g.scale, thin);
}

void LowRankProducts::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View kept,
                              View scratch) const {
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false);
    run_down(lane, g, parameters, x, h, scratch);
    for (const Member& m : g.members)
      m.up.run(lane, from(ConstView(h), m.first), parameters.sub(m.target.at.b, m.target.out * m.target.at.rank), {},
               from(y, m.target.column), scratch);
  }
}

void LowRankProducts::forward_row(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View kept) const {
  const View added = View{kept.data, 2 * columns_ + spec_.out, spec_.dtype}.sub(2 * columns_, spec_.out);
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false);
    device::matvec(lane, {g.rank, spec_.in}, parameters.sub(g.a, g.rank * spec_.in), x.sub(0, spec_.in), {}, h);
    if (g.scale != 1) scale(lane, h, g.scale, h);
    for (const Member& m : g.members) {
      const std::size_t rank = m.target.at.rank, out = m.target.out;
      const View of_y = y.sub(m.target.column, out), of_added = added.sub(m.target.column, out);
      device::matvec(lane, {out, rank}, parameters.sub(m.target.at.b, out * rank), h.sub(m.first, rank), {}, of_added);
      device::add_residual(lane, of_added, of_y, of_y);
    }
  }
}

void LowRankProducts::backward_parameters(Lane& lane, const ParameterRange& parameters, ConstView x, ConstView dy,
                                          const GradientRange& gradients, View kept, View scratch) const {
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false), d_h = thin(g, kept, true);
    run_down(lane, g, parameters, x, h, scratch);
    for (const Member& m : g.members) {
      const std::size_t size = m.target.out * m.target.at.rank;
      const ConstView dy_of = from(dy, m.target.column);
      m.d_b.run(lane, dy_of, from(ConstView(h), m.first), {}, gradients.sub(m.target.at.b, size), scratch);
      m.d_down.run(lane, dy_of, parameters.sub(m.target.at.b, size), {}, from(d_h, m.first), scratch);
    }
    if (g.scale != 1) scale(lane, d_h, g.scale, d_h);
    g.d_a.run(lane, d_h, x, {}, gradients.sub(g.a, g.rank * spec_.in), scratch);
  }
}

void LowRankProducts::backward_input(Lane& lane, const ParameterRange& parameters, View dx, View kept,
                                     View scratch) const {
  for (const Group& g : groups_)
    g.input.run(lane, thin(g, kept, true), parameters.sub(g.a, g.rank * spec_.in), {}, dx, scratch);
}

}  // namespace strata::models

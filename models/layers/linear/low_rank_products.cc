#include <algorithm>
#include <utility>

#include "device/ops/elementwise.h"
#include "device/ops/products/product.h"
#include "models/layers/linear/linear.h"
#include "models/layers/linear/products.h"
#include "models/layers/slots.h"

namespace strata::models {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::Product;
using device::ProductShape;
using device::View;

}  // namespace

LowRankProducts::LowRankProducts(const Spec& spec, std::span<const Target> targets) : spec_(spec) {
  struct Run {
    std::size_t a, rank;
    float scale;
    std::uint32_t number;
    std::vector<Target> targets;
  };
  std::vector<Run> runs;
  for (std::uint32_t i = 0; i < targets.size(); ++i) {
    const LowRank& at = targets[i].at;
    if (at.rank == 0) continue;
    if (runs.empty() || spec.dropout > 0 || runs.back().a + runs.back().rank * spec.in != at.a ||
        runs.back().scale != at.scale)
      runs.push_back({at.a, 0, at.scale, i, {}});
    runs.back().rank += at.rank;
    runs.back().targets.push_back(targets[i]);
  }
  const auto rows = static_cast<std::int64_t>(spec.rows), in = static_cast<std::int64_t>(spec.in);
  const auto all = static_cast<std::int64_t>(spec.out);
  const DType t = spec.dtype;
  const DType d_a = spec.full == Spec::Full::a ? DType::fp32 : t, d_b = spec.full == Spec::Full::b ? DType::fp32 : t;
  const auto make = [&](const ProductShape& shape) { return Product(spec.device, shape); };
  for (const Run& run : runs) {
    const auto r = static_cast<std::int64_t>(run.rank);
    Group& group = groups_.emplace_back(Group{run.a,
                                              run.rank,
                                              columns_ * spec.rows,
                                              run.scale,
                                              run.number,
                                              make({rows, r, in, false, true, in, in, r, t, t}),
                                              make({r, in, rows, true, false, r, in, in, t, d_a}),
                                              std::nullopt,
                                              {}});
    if (spec.input_gradient)
      group.input = make({rows, in, r, false, false, r, in, in, t, spec.input_sum, false, spec.dropout == 0});
    columns_ += run.rank;
    std::size_t first = 0;
    for (const Target& target : run.targets) {
      const auto n = static_cast<std::int64_t>(target.out), k = static_cast<std::int64_t>(target.at.rank);
      group.members.push_back({target, first, make({rows, n, k, false, true, r, k, all, t, spec.output, false, true}),
                               make({n, k, rows, true, false, all, r, k, t, d_b}),
                               make({rows, k, n, false, false, all, k, r, t, t})});
      first += target.at.rank;
    }
  }
}

std::size_t LowRankProducts::kept_bytes() const {
  // x A^T and s dy B; a single row also needs its addend to y.
  const std::size_t elements = 2 * columns_ * spec_.rows + (spec_.rows == 1 && !empty() ? spec_.out : 0);
  const std::size_t bytes = aligned(elements * size_of(spec_.dtype));
  return bytes + (spec_.dropout > 0 ? aligned(spec_.rows * spec_.in * size_of(spec_.input_sum)) : 0);
}

std::size_t LowRankProducts::scratch_bytes(int threads) const {
  std::size_t most = 0;
  for (const Group& g : groups_) {
    for (const Product* product : {&g.down, &g.d_a}) most = std::max(most, product->workspace_bytes(threads));
    if (g.input) most = std::max(most, g.input->workspace_bytes(threads));
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
    flops += flops_of(g.down) + flops_of(g.d_a) + (g.input ? flops_of(*g.input) : 0);
    for (const Member& m : g.members) flops += flops_of(m.d_b) + flops_of(m.d_down);
  }
  return flops;
}

void LowRankProducts::list_products(std::vector<ProductShape>& out) const {
  for (const Group& g : groups_) {
    for (const Product* product : {&g.down, &g.down, &g.d_a}) out.push_back(product->shape());
    if (g.input) out.push_back(g.input->shape());
    for (const Member& m : g.members)
      for (const Product* product : {&m.up, &m.d_b, &m.d_down}) out.push_back(product->shape());
  }
}

View LowRankProducts::thin(const Group& group, View kept, bool gradient) const {
  const View all{kept.data, 2 * columns_ * spec_.rows, spec_.dtype};
  return all.sub(group.offset + (gradient ? columns_ * spec_.rows : 0), spec_.rows * group.rank);
}

View LowRankProducts::wide(View kept, DType dtype) const {
  const std::size_t size = spec_.rows * spec_.in, bytes = aligned(size * size_of(spec_.input_sum));
  return {kept.data + kept_bytes() - bytes, size, dtype};
}

device::Dropout LowRankProducts::of(const Group& group, device::Dropout dropout) const {
  STRATA_CHECK_EQ(dropout.probability, spec_.dropout);
  dropout.site += group.number;
  return dropout;
}

// Scale here, so that neither B's product nor its gradient has to be scaled.
ConstView LowRankProducts::run_down(Lane& lane, const Group& g, const ParameterRange& parameters, ConstView x,
                                    View kept, View scratch, const device::Dropout& dropout) const {
  x = x.sub(0, spec_.rows * spec_.in);
  if (spec_.dropout > 0) {
    const View left = wide(kept, spec_.dtype);
    device::dropout(lane, of(g, dropout), x, {}, left);
    x = left;
  }
  const View h = thin(g, kept, false);
  const ConstView a = parameters.sub(g.a, g.rank * spec_.in);
  if (!scratch)
    device::matvec(lane, {g.rank, spec_.in}, a, x, {}, h);
  else
    g.down.run(lane, x, a, {}, h, scratch);
  if (g.scale != 1) scale(lane, h, g.scale, h);
  return x;
}

void LowRankProducts::forward(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View kept,
                              View scratch, const device::Dropout& dropout) const {
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false);
    run_down(lane, g, parameters, x, kept, scratch, dropout);
    for (const Member& m : g.members)
      m.up.run(lane, columns_from(ConstView(h), m.first),
               parameters.sub(m.target.at.b, m.target.out * m.target.at.rank), {}, columns_from(y, m.target.column),
               scratch);
  }
}

void LowRankProducts::forward_row(Lane& lane, const ParameterRange& parameters, ConstView x, View y, View kept,
                                  const device::Dropout& dropout) const {
  const View added = View{kept.data, 2 * columns_ + spec_.out, spec_.dtype}.sub(2 * columns_, spec_.out);
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false);
    run_down(lane, g, parameters, x, kept, {}, dropout);
    for (const Member& m : g.members) {
      const std::size_t rank = m.target.at.rank, out = m.target.out;
      const View of_y = y.sub(m.target.column, out), of_added = added.sub(m.target.column, out);
      device::matvec(lane, {out, rank}, parameters.sub(m.target.at.b, out * rank), h.sub(m.first, rank), {}, of_added);
      device::add_residual(lane, of_added, of_y, of_y);
    }
  }
}

void LowRankProducts::backward_parameters(Lane& lane, const ParameterRange& parameters, ConstView x, ConstView dy,
                                          const GradientRange& gradients, View kept, View scratch,
                                          const device::Dropout& dropout, View sums) const {
  std::size_t left_in_sums = 0;
  const auto gradient = [&](Spec::Full factor, std::size_t offset, std::size_t size) {
    return spec_.full == factor ? sums.sub(std::exchange(left_in_sums, left_in_sums + size), size)
                                : gradients.sub(offset, size);
  };
  for (const Group& g : groups_) {
    const View h = thin(g, kept, false), d_h = thin(g, kept, true);
    const ConstView left = run_down(lane, g, parameters, x, kept, scratch, dropout);
    for (const Member& m : g.members) {
      const std::size_t size = m.target.out * m.target.at.rank;
      const ConstView dy_of = columns_from(dy, m.target.column);
      m.d_b.run(lane, dy_of, columns_from(ConstView(h), m.first), {}, gradient(Spec::Full::b, m.target.at.b, size),
                scratch);
      m.d_down.run(lane, dy_of, parameters.sub(m.target.at.b, size), {}, columns_from(d_h, m.first), scratch);
    }
    if (g.scale != 1) scale(lane, d_h, g.scale, d_h);
    g.d_a.run(lane, d_h, left, {}, gradient(Spec::Full::a, g.a, g.rank * spec_.in), scratch);
  }
}

void LowRankProducts::backward_input(Lane& lane, const ParameterRange& parameters, View dx, View kept, View scratch,
                                     const device::Dropout& dropout) const {
  for (const Group& g : groups_) {
    const ConstView d_h = thin(g, kept, true), a = parameters.sub(g.a, g.rank * spec_.in);
    if (spec_.dropout == 0) {
      g.input->run(lane, d_h, a, {}, dx, scratch);
      continue;
    }
    const View by_one = wide(kept, spec_.input_sum), sum = dx.sub(0, by_one.size);
    g.input->run(lane, d_h, a, {}, by_one, scratch);
    device::dropout(lane, of(g, dropout), by_one, sum, sum);
  }
}

}  // namespace strata::models

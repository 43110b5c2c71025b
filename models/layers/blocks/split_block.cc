#include "models/layers/blocks/split_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"

namespace strata::models {
namespace {

// The number of (query, key) pairs in a sequence that is one document. Causal attention counts half of the diagonal, as
// if positions were points on a line; a window counts the pairs within it.
double seen_keys(const device::AttentionShape& a) {
  const auto seq = static_cast<double>(a.seq);
  const auto side = [&](std::size_t rows) {  // the keys on one side of the diagonal, at most this many rows away
    const double reach = std::min(static_cast<double>(rows), seq);
    return reach * seq - reach * reach / 2;
  };
  return side(a.window == 0 ? a.seq : a.causal ? a.window : a.window / 2) + (a.causal ? 0 : side(a.ahead()));
}

}  // namespace

using device::ConstView;
using device::Lane;
using device::View;

void SplitBlock::forward(Lane& lane, const Context& c, std::size_t part, ConstView x, View y, View kept) const {
  const ActivationViews saved = activations(c, kept);
  const std::size_t first = in_one_part() ? 0 : part;
  const std::size_t last = !in_one_part() ? part + 1 : makes_output(c, y) ? std::size_t{kProducts} : saving_products();
  std::size_t stretch = 0;
  const auto due = [&] { return !shared() || stretch == c.stretch; };
  if (squares() > 0) {
    if (due()) write_partial_squares(lane, c, shared() ? c.partial : saved_squares(c, saved));
    ++stretch;
    if (shared() && due()) take_squares(lane, c, saved);
  }
  for (std::size_t product = first; product < last; ++product) {
    if (divides_rows_ && starts_half(Pass::forward, product)) {
      if (due()) leave_input(lane, c, product, x, saved, rows_in(c, x, 0));
      ++stretch;
    }
    if (due()) forward_of(lane, c, product, x, y, saved);
    if (product == kAttention) {
      if (crossing_keys() > 0) ++stretch;
      if (due()) attend(lane, c, saved);
    }
    if (!is_sum(Pass::forward, product)) continue;
    ++stretch;
    if (due()) after_forward(lane, c, product, x, y, saved);
  }
}

void SplitBlock::backward(Lane& lane, const Context& c, std::size_t part, ConstView x, ConstView saved, ConstView dy,
                          View dx, const GradientRange& gradients) const {
  if (c.overlaps_exchange) {
    const bool of_mlp = c.stretch <= (divides_rows_ ? 1 : 0);
    return backward_parameters_of(lane, c, of_mlp ? kUp : kAttention, x, saved, gradients);
  }
  const std::size_t first = in_one_part() ? first_backward_product() : part;
  const std::size_t last = in_one_part() ? std::size_t{kProducts} : part + 1;
  std::size_t stretch = 0;
  const auto due = [&] { return !shared() || stretch == c.stretch; };
  for (std::size_t product = last; product-- > first;) {
    if (divides_rows_ && starts_half(Pass::backward, product)) {
      const bool goes_on = reaches(step_of(product));
      if (due())
        write_partial_gradient(lane, c, product, x, saved, dy, dx, goes_on ? rows_in(c, dy, 0) : View{},
                               needs_input(product) ? rows_in(c, dy, 1) : View{});
      if (goes_on) ++stretch;
    }
    if (product == kAttention) {
      if (due()) attend_backward(lane, c, x, saved);
      if (crossing_keys() > 0) ++stretch;
    }
    if (due()) backward_of(lane, c, product, x, saved, dy, dx, gradients);
    if (!is_sum(Pass::backward, product)) continue;
    if (seam_after(Pass::backward, product).elements > 0) ++stretch;
    if (due()) after_backward(lane, c, product, x, saved, dy, dx, gradients);
  }
  if (crossing_gradients() == 0) return;
  if (due()) write_partial_gradients(lane, c, c.partial);
  ++stretch;
  if (due()) take_gradients(lane, c.total, gradients);
}

View SplitBlock::rows_in(const Context& c, ConstView x, std::size_t i) {
  return {c.partial.data + i * x.bytes(), x.size, x.dtype};
}

std::vector<Seam> SplitBlock::seams(Pass pass, bool wants_output) const {
  std::vector<Seam> all;
  if (!shared()) return all;
  const bool backward = pass == Pass::backward;
  if (!backward && squares() > 0) all.push_back({.elements = squares(), .gathers = true, .has_products = false});
  const std::size_t first = backward ? first_backward_product() : 0;
  const std::size_t last = backward || wants_output ? std::size_t{kProducts} : saving_products();
  for (std::size_t i = first; i < last; ++i) {
    const std::size_t product = backward ? first + last - 1 - i : i;
    if (divides_rows_ && starts_half(pass, product) && (!backward || reaches(step_of(product)))) {
      Seam rows = seam_after(Pass::forward, kProjection);
      rows.bias.reset();
      rows.row_matrices = backward && needs_input(product) ? 2 : 1;
      all.push_back(rows);
    }
    if (product == kAttention && crossing_keys() > 0) all.push_back({.elements = crossing_keys()});
    if (!is_sum(pass, product)) continue;
    const Seam sum = seam_after(pass, product);
    if (sum.elements == 0) continue;
    all.push_back(sum);
    all.back().own_rows = divides_rows_;
    all.back().overlaps_exchange = backward && trains() && !adapted_[product] && passes(step_of(product));
  }
  if (backward && crossing_gradients() > 0) all.push_back({.elements = crossing_gradients(), .has_products = false});
  return all;
}

std::size_t SplitBlock::first_backward_product() const {
  if (end_.step == BlockStep::middle_norm) return middle_norm_product();
  std::size_t product = kDown;
  while (product > kAttention && passes(step_of(product))) --product;
  return product;
}

void SplitBlock::note_trained(BlockStep step, std::size_t first) {
  if (std::ranges::any_of(parameters().subspan(first), &Parameter::trained))
    lowest_trained_ = std::min(lowest_trained_, step);
}

std::size_t SplitBlock::add(std::string name, std::vector<std::int64_t> shape, const Slice& slice, bool decay,
                            Init init) {
  if (slice.shards > 1) return add_cut_parameter(std::move(name), std::move(shape), slice, decay, init);
  add_parameter(std::move(name), std::move(shape), decay, init);
  return parameters().size() - 1;
}

void SplitBlock::add_layers(SplitLinear::Offsets& places, const std::string& prefix, const JoinedLayers& layers,
                            std::size_t in, CutSide side, bool input_major) {
  const bool outputs = side == CutSide::outputs;
  const std::size_t before = parameters().size();
  std::vector<Linear::Tensor> tensors;
  std::vector<LinearShape> shapes;
  std::vector<std::size_t> all_sharers;
  for (const auto& [name, out, segments, sharers] : layers.matrices) {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(out), static_cast<std::int64_t>(in)};
    if (input_major) std::swap(shape[0], shape[1]);
    const Slice slice{static_cast<std::size_t>(outputs == input_major), outputs ? segments : 1, shards_.of, sharers};
    tensors.push_back({out, add(prefix + name + ".weight", std::move(shape), slice, true, layers.init)});
    shapes.push_back({prefix + name, out, input_major, segments, sharers});
    all_sharers.push_back(sharers);
  }
  for (std::size_t i = 0; layers.biased && i < tensors.size(); ++i)
    tensors[i].bias = add(shapes[i].name + ".bias", {static_cast<std::int64_t>(tensors[i].out)},
                          {0, shapes[i].segments, outputs ? shards_.of : 1, all_sharers[i]}, false, {0, 0});
  const std::vector<LowRank> low_ranks = add_low_rank(in, shapes, shards_.of, outputs);
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].low_rank = low_ranks[i];
  note_trained(step_of(adapted_.size()), before);
  adapted_.push_back(std::ranges::any_of(low_ranks, [](const LowRank& low_rank) { return low_rank.rank > 0; }));
  added_.push_back({&places, side, layers.biased, std::move(tensors), std::move(all_sharers)});
}

NormOffsets SplitBlock::add_norm(BlockStep step, NormKind kind, const std::string& name, std::size_t width) {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(width)};
  const std::size_t before = parameters().size();
  NormOffsets places{add_parameter(name + ".weight", shape, false, {1, 0})};
  if (kind == NormKind::layer) places.bias = add_parameter(name + ".bias", shape, false, {0, 0});
  note_trained(step, before);
  return places;
}

void SplitBlock::end_product() {
  if (shards_.of == 1) end_part();
}

void SplitBlock::end_block() {
  if (shards_.of > 1) place_shards(shards_);
  end_part();
  const auto all = parameters();
  for (const Added& layers : std::exchange(added_, {})) {
    layers.places->first = shards_.first;
    layers.places->of = shards_.of;
    layers.places->sharers = *std::ranges::max_element(layers.sharers);
    layers.places->everywhere = static_cast<std::size_t>(std::ranges::count(layers.sharers, 1u));
    for (std::size_t shard = 0; shard < shards_.count; ++shard) {
      layers.places->shards.emplace_back();
      for (std::size_t i = 0; i < layers.tensors.size(); ++i) {
        Linear::Tensor tensor = layers.tensors[i];
        const std::size_t sharers = layers.sharers[i];
        if (layers.side == CutSide::outputs) tensor.out /= shards_.of / sharers;
        tensor.weight = all[tensor.weight].offset_of(shard);
        if (layers.biased) tensor.bias = all[tensor.bias].offset_of(shard);
        if (LowRank& at = tensor.low_rank; shards_.of > 1 && at.rank > 0) {
          at.a = all[at.a].offset_of(shard);
          at.b = all[at.b].offset_of(shard);
          if (at.dora) at.magnitude = all[at.magnitude].offset_of(shard);
        }
        if (shard == 0 && layers.places->sharers > 1) layers.places->complete.push_back(tensor);
        if ((shards_.first + shard) % sharers != 0) tensor.out = 0;
        layers.places->shards.back().push_back(tensor);
      }
    }
    if (layers.biased && layers.side == CutSide::inputs) layers.places->bias = all[layers.tensors.front().bias].offset;
  }
}

void require_whole_shards(const RunShape& run, std::size_t heads, std::size_t kv_heads, std::size_t inner) {
  const std::size_t together = std::gcd(heads, inner), wanted = run.shards.of;
  const auto divides = [&](std::size_t shards) {
    return together % shards == 0 && (kv_heads % shards == 0 || shards % kv_heads == 0);
  };
  if (divides(wanted)) return;
  std::size_t most = together & -together;
  while (!divides(most)) most /= 2;
  const std::size_t tensor = wanted / run.shards.count;  // ranks that share a layer
  const std::string advice = most == 1 ? "leave it out"
                             : run.shards.count > 1 && tensor > most
                                 ? fmt::format("use at most {}, and as many ranks in parallel.tensor", most)
                                 : fmt::format("use at most {}", most);
  fail(Exit::usage, "{} cannot divide this model's blocks: it must divide their {} heads and MLP of {}{}; {}",
       key_text(run.shards), heads, inner,
       kv_heads == heads
           ? ""
           : fmt::format(", and divide their {} or be a multiple of them", counted(kv_heads, "key-value head")),
       advice);
}

Work block_work(const Unit& block, Pass pass, const PartRange& parts, std::span<const SplitLinear* const> linears,
                const device::AttentionShape& attention, std::size_t activation, const BackwardEnd& end,
                std::size_t passing) {
  const bool one_part = block.parts().size() == 1, all = one_part && parts.first < parts.last;
  if (!one_part) STRATA_CHECK_EQ(linears.size(), block.parts().size());
  const std::size_t saved = block.bytes().saved;
  double flops = 0;
  for (const SplitLinear* linear : all ? linears : linears.subspan(parts.first, parts.last - parts.first))
    flops += pass == Pass::forward ? linear->forward_flops() : linear->backward_flops();
  // Counts q k^T and its product with v, for the keys that a query sees. Backward has five such products.
  const device::AttentionShape& a = attention;
  const double two_products = 4 * seen_keys(a) * static_cast<double>(a.batch * a.heads * a.head_dim);
  if (pass == Pass::forward)
    return {flops, block.share_of(two_products, parts),
            block.share_of(static_cast<double>(saved + passing + 2 * activation), parts)};
  const double attends = end.passes(BlockStep::projection) ? 2.5 * two_products : 0;
  const std::size_t first = std::min(std::max(parts.first, block.first_backward_part()), parts.last);
  const double share =
      static_cast<double>(parts.last - first) / static_cast<double>(block.parts().size() - block.first_backward_part());
  return {flops, share * attends, share * static_cast<double>(2 * saved)};
}

}  // namespace strata::models

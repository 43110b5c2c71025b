#include "models/model.h"

#include <numeric>

#include "base/error.h"

namespace strata::models {

std::size_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t n, std::int64_t d) { return n * static_cast<std::size_t>(d); });
}

std::size_t Unit::add_parameter(std::string name, std::vector<std::int64_t> shape, bool decay, Init init) {
  const std::size_t offset = size_;
  const Parameter& p = parameters_.emplace_back(std::move(name), std::move(shape), offset, decay, init);
  size_ = (offset + p.size() + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  return offset;
}

void Unit::end_part() {
  const std::size_t begin = parts_.empty() ? 0 : parts_.back().end;
  if (size_ > begin) parts_.push_back({begin, size_});
}

std::size_t Unit::add_table(std::string name, const TableTiles& tiles, std::size_t width, Init init) {
  static_assert(TableTiles::rows_on(device::Kind::cpu) % kParameterAlignment == 0);
  static_assert(TableTiles::rows_on(device::Kind::cuda) % kParameterAlignment == 0);
  end_part();
  const std::size_t offset = add_parameter(
      std::move(name), {static_cast<std::int64_t>(tiles.vocabulary()), static_cast<std::int64_t>(width)}, true, init);
  for (std::size_t tile = 0; tile < tiles.count(); ++tile)
    parts_.push_back({offset + tiles.first(tile) * width,
                      tile + 1 < tiles.count() ? offset + tiles.first(tile + 1) * width : size_});
  return offset;
}

void Head::forward(device::Lane&, const Context&, std::size_t, device::ConstView, device::View, device::View) const {
  STRATA_CHECK(!"the head is run by loss()");
}

void Head::backward(device::Lane&, const Context&, std::size_t, device::ConstView, device::ConstView, device::ConstView,
                    device::View, const GradientRange&) const {
  STRATA_CHECK(!"the head is run by loss()");
}

void Head::logits(device::Lane&, const Context&, device::ConstView, device::View) const {
  STRATA_CHECK(!"this head was not prepared to generate");
}

const Head& Model::head() const {
  return static_cast<const Head&>(*units.back());
}

std::size_t Model::parameters() const {
  std::size_t n = 0;
  for (const auto& unit : units)
    for (const Parameter& p : unit->parameters()) n += p.size();
  return n;
}

double Model::flops_per_token(std::size_t seq) const {
  // Matrices of the embedding unit are looked up, not multiplied; the head multiplies one of the table's size.
  double products = static_cast<double>(vocabulary * hidden);
  for (std::size_t u = 1; u + 1 < units.size(); ++u)
    for (const Parameter& p : units[u]->parameters())
      if (p.shape.size() == 2) products += static_cast<double>(p.size());
  return 6 * products + 12.0 * static_cast<double>(layers * heads * head_dim * seq);
}

}  // namespace strata::models

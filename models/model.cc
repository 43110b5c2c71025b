#include "models/model.h"

#include <numeric>

#include "device/error.h"

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

void Head::forward(device::Lane&, const Context&, device::ConstView, device::View, device::View) const {
  STRATA_CHECK(!"the head is run by loss()");
}

void Head::backward(device::Lane&, const Context&, device::ConstView, device::ConstView, device::ConstView,
                    device::View, device::View) const {
  STRATA_CHECK(!"the head is run by loss()");
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

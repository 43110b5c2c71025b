#include "runtime/plan/layout/box.h"

#include <functional>
#include <numeric>

#include "base/error.h"

namespace strata::runtime {

Box Box::full(const std::vector<std::uint64_t>& shape) {
  return {shape, std::vector<std::uint64_t>(shape.size()), shape};
}

std::uint64_t Box::elements() const {
  return std::accumulate(size.begin(), size.end(), std::uint64_t{1}, std::multiplies<>());
}

std::uint64_t Box::of_tensor() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

bool Box::overlaps(const Box& other) const {
  STRATA_CHECK(shape == other.shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (offset[d] + size[d] <= other.offset[d] || other.offset[d] + other.size[d] <= offset[d]) return false;
  return true;
}

bool splits(const std::vector<std::uint64_t>& split, const std::vector<std::uint64_t>& shape) {
  std::size_t at = 0;
  for (const std::uint64_t size : shape) {
    if (at == split.size()) return false;
    std::uint64_t product = split[at++];
    while (product < size && at < split.size() && split[at] > 0) product *= split[at++];
    if (product != size) return false;
  }
  return at == split.size();
}

BoxRuns::BoxRuns(const Box& box) {
  std::uint64_t stride = 1;
  bool contiguous = true;  // the dimensions so far, from the fastest on
  for (std::size_t d = box.shape.size(); d-- > 0;) {
    first_ += box.offset[d] * stride;
    if (contiguous) {
      length_ *= box.size[d];
      contiguous = box.size[d] == box.shape[d];
    } else {
      outer_.insert(outer_.begin(), {box.size[d], stride});
      count_ *= box.size[d];
    }
    stride *= box.shape[d];
  }
}

std::uint64_t BoxRuns::place(std::uint64_t i) const {
  std::uint64_t at = first_;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    at += i % outer_[d].size * outer_[d].stride;
    i /= outer_[d].size;
  }
  return at;
}

std::uint64_t BoxRuns::first_after(std::uint64_t i, std::uint64_t element) const {
  std::uint64_t end = std::max(i, count_);
  while (i < end) {
    const std::uint64_t middle = i + (end - i) / 2;
    if (place(middle) + length_ > element)
      end = middle;
    else
      i = middle + 1;
  }
  return i;
}

}  // namespace strata::runtime

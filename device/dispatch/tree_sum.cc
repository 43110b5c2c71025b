#include "device/ops/tree_sum.h"

#include <bit>

#include "base/error.h"
#include "device/operations.h"

namespace strata::device {
namespace {

void check_bias(ConstView bias, View out) {
  if (!bias) return;
  STRATA_CHECK(bias.dtype == out.dtype);
  STRATA_CHECK_EQ(out.size % bias.size, 0u);
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  STRATA_CHECK(std::has_single_bit(count));
  STRATA_CHECK_LE(count, kMostPartials);
  STRATA_CHECK(partials.dtype == DType::fp32);
  STRATA_CHECK_EQ(partials.size, count * out.size);
  if (out.size == 0) return;
  check_bias(bias, out);
  lane.operations().tree_sum(lane, count, partials, bias, out);
}

void tree_sum_of_pieces(Lane& lane, std::span<const std::byte* const> partials, ConstView bias, View out) {
  STRATA_CHECK(std::has_single_bit(partials.size()));
  STRATA_CHECK_LE(partials.size(), kMostPieces);
  if (out.size == 0) return;
  check_bias(bias, out);
  lane.operations().tree_sum_of_pieces(lane, partials, bias, out);
}

}  // namespace strata::device

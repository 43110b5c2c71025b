#include "device/ops/tree_sum.h"

#include <algorithm>

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {
namespace {

// Calls add(at, n, bias, out) for stretches [at, at + n) of the result that lie in one row of the bias.
template <typename Add>
void by_rows(Team& team, std::size_t count, ConstView bias, View out, const Add& add) {
  const std::size_t row = bias ? bias.size : out.size;
  team.for_range(out.size, std::max<std::size_t>(kGrain / count, 1), [&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end;) {
      const std::size_t column = at % row, n = std::min(end - at, row - column);
      add(at, n, bias ? bias.sub(column, n).data : nullptr, out.sub(at, n).data);
      at += n;
    }
  });
}

}  // namespace

void tree_sum(Lane& lane, std::size_t count, ConstView partials, ConstView bias, View out) {
  const auto kernel = tree_sum_kernels().tree_sum[index(out.dtype)];
  const auto* from = partials.as<float>();
  submit(lane, [=](Team& team) {
    by_rows(team, count, bias, out, [&](std::size_t at, std::size_t n, const std::byte* some_bias, std::byte* to) {
      kernel(from + at, count, out.size, some_bias, to, n);
    });
  });
}

void tree_sum_of_pieces(Lane& lane, std::span<const std::byte* const> partials, ConstView bias, View out) {
  const auto kernel = tree_sum_kernels().tree_sum_of_pieces[index(out.dtype)];
  submit(lane, [=](Team& team) {
    by_rows(team, partials.size(), bias, out,
            [&](std::size_t at, std::size_t n, const std::byte* some_bias, std::byte* to) {
              kernel(partials.data(), partials.size(), at, some_bias, to, n);
            });
  });
}

}  // namespace strata::device::cpu

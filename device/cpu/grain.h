#pragma once
#include <algorithm>
#include <cstddef>

#include "base/index.h"
#include "device/cpu/team.h"

namespace strata::device::cpu {

// The elements in one task of elementwise work: small enough to balance, large enough to amortise a task's overhead.
inline constexpr std::size_t kGrain = 32768;

// Calls f(row) for every row of `width` elements, in tasks of whole rows.
template <typename F>
void for_rows(Team& team, std::size_t rows, std::size_t width, F&& f) {
  team.for_range(rows, std::max<std::size_t>(1, kGrain / width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace strata::device::cpu

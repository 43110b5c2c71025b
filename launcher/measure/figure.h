#pragma once
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher {

// What was measured, for people: how far its calls lay apart, as a part of their median (half of the span from the
// 10th to the 90th percentile).
struct Figure {
  std::string what, unit;
  double value, spread;
};
constexpr double kWideSpread = 0.15;  // a figure above it is no measure of the machine

// The median of the figures' spreads; none: there are none.
std::optional<double> median_spread(const std::vector<Figure>& figures);
// Comments for the end of a machine file, a line per figure whose spread is wide; empty: none is.
std::string wide_spreads(const std::vector<Figure>& figures);

}  // namespace strata::launcher

#include "launcher/measure/figure.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::launcher {

std::optional<double> median_spread(const std::vector<Figure>& figures) {
  if (figures.empty()) return std::nullopt;
  std::vector<double> spreads;
  spreads.reserve(figures.size());
  for (const Figure& figure : figures) spreads.push_back(figure.spread);
  std::sort(spreads.begin(), spreads.end());
  return spreads[spreads.size() / 2];
}

std::string wide_spreads(const std::vector<Figure>& figures) {
  std::string text;
  for (const Figure& f : figures)
    if (f.spread > kWideSpread)
      text += fmt::format("# {}: {:.4g} {}, +-{:.0f}%\n", f.what, f.value, f.unit, 100 * f.spread);
  return text.empty() ? ""
                      : "\n# Measured with a wide spread, as of a machine that does something else meanwhile:\n" + text;
}

}  // namespace strata::launcher

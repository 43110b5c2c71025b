#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "launcher/measure/memory/memory.h"

namespace strata::launcher {
namespace {

using Kind = runtime::Recompute::Kind;
using runtime::Tier;

constexpr double kWidth = 940, kHeight = 560;
constexpr double kLeft = 84, kRight = 720, kTop = 92, kBottom = 496;  // the ends of the axes
constexpr double kLegend = 752;

constexpr std::string_view kStyle = R"(<style>
svg { background: #ffffff; color: #1f2328; font: 13px system-ui, sans-serif; }
text { fill: currentColor; }
.title { font-size: 17px; font-weight: 600; }
.quiet { fill: #59636e; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
.axis { stroke: #59636e; stroke-width: 1; }
.dot { stroke-width: 2; stroke-linejoin: round; }
.fp32 { fill: #c2410c; stroke: #c2410c; }
.fp16 { fill: #7c3aed; stroke: #7c3aed; }
.bf16 { fill: #0369a1; stroke: #0369a1; }
.shape { fill: #59636e; stroke: #59636e; }
.host { fill-opacity: 0.3; }
.nvme { fill-opacity: 0; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; color: #f0f6fc; }
.quiet { fill: #9198a1; }
.grid { stroke: #30363d; }
.axis { stroke: #9198a1; }
.fp32 { fill: #fb923c; stroke: #fb923c; }
.fp16 { fill: #c4a7ff; stroke: #c4a7ff; }
.bf16 { fill: #58b6f0; stroke: #58b6f0; }
.shape { fill: #9198a1; stroke: #9198a1; }
}
</style>
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

// The distance between round marks, of which there are about five up to `most`.
double mark_distance(double most) {
  const double rough = most / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0})
    if (rough <= step * power) return step * power;
  return 10 * power;
}

// An axis from zero to a round mark at or above `most`.
struct Scale {
  double most, distance, from, to;

  Scale(double most_value, double from_pixel, double to_pixel)
      : most(0), distance(mark_distance(most_value)), from(from_pixel), to(to_pixel) {
    most = std::ceil(most_value / distance) * distance;
  }
  double at(double value) const { return from + (to - from) * value / most; }
};

// A marker whose area is about the same in every shape.
std::string shape(Kind recompute, double x, double y, double radius, const std::string& classes,
                  const std::string& inside = {}) {
  const std::string rest = fmt::format(" class=\"dot {}\">{}</", classes, inside);
  if (recompute == Kind::none)
    return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"{}circle>\n", x, y, radius, rest);
  if (recompute == Kind::sqrt) {
    const double r = 1.3 * radius;
    return fmt::format("<path d=\"M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}z\"{}path>\n", x, y - r, 0.87 * r, 1.5 * r,
                       -1.74 * r, rest);
  }
  const double half = 0.89 * radius;
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"{}rect>\n", x - half, y - half,
                     2 * half, 2 * half, rest);
}

double radius_of(int accumulation) {
  return accumulation == 1 ? 7.5 : accumulation == 2 ? 5.5 : 3.5;
}

std::string text(double x, double y, const std::string& words, const char* attributes = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes, escaped(words));
}

std::string setting_words(const MemorySetting& s) {
  return fmt::format("{}, recompute {}, {}, optimizer on {}", device::name_of(s.precision), name_of(s.recompute),
                     counted(s.accumulation, "micro-batch", "micro-batches"),
                     runtime::kTierNames[static_cast<std::size_t>(s.optimizer)]);
}

std::string dot(const MemoryRow& row, MemoryOf of, const Scale& x, const Scale& y) {
  const MemorySetting& s = row.setting;
  const std::uint64_t bytes = measured_bytes(row, of);
  const std::string title = fmt::format("<title>{}: {}, {:.1f} ms per step</title>", setting_words(s),
                                        bytes_text(bytes), row.result->step_ms);
  const std::string classes =
      fmt::format("{} {}", device::name_of(s.precision), runtime::kTierNames[static_cast<std::size_t>(s.optimizer)]);
  return shape(s.recompute, x.at(static_cast<double>(bytes)), y.at(row.result->step_ms), radius_of(s.accumulation),
               classes, title);
}

std::string axes(const Scale& x, const Scale& y, double unit, const char* unit_name, MemoryOf of) {
  std::string out;
  for (double value = 0; value <= y.most * 1.001; value += y.distance) {
    out += fmt::format("<path class=\"{}\" d=\"M{} {:.1f}H{}\"/>\n", value == 0 ? "axis" : "grid", kLeft, y.at(value),
                       kRight);
    out += text(kLeft - 8, y.at(value) + 4, fmt::format("{:g}", value), " text-anchor=\"end\" class=\"quiet\"");
  }
  for (double value = 0; value <= x.most * 1.001; value += x.distance) {
    out += fmt::format("<path class=\"{}\" d=\"M{:.1f} {}V{}\"/>\n", value == 0 ? "axis" : "grid", x.at(value), kTop,
                       kBottom);
    out +=
        text(x.at(value), kBottom + 18, fmt::format("{:g}", value / unit), " text-anchor=\"middle\" class=\"quiet\"");
  }
  out += text((kLeft + kRight) / 2, kBottom + 40,
              fmt::format("peak of {}, {}", of == MemoryOf::cpu ? "RAM" : "the GPU's memory", unit_name),
              " text-anchor=\"middle\"");
  return out +
         fmt::format("<text transform=\"translate(28 {}) rotate(-90)\" text-anchor=\"middle\">ms per step</text>\n",
                     (kTop + kBottom) / 2);
}

// The legend of the settings that ran: each property, with the values that occur.
class Legend {
 public:
  explicit Legend(const std::vector<const MemoryRow*>& rows) : rows_(rows) {}

  std::string draw() {
    section(
        "precision", {device::DType::fp32, device::DType::fp16, device::DType::bf16}, &MemorySetting::precision,
        [](device::DType d) { return std::pair(std::string(device::name_of(d)), std::string(device::name_of(d))); });
    section("recompute", {Kind::none, Kind::sqrt, Kind::block}, &MemorySetting::recompute,
            [](Kind kind) { return std::pair(std::string(name_of(kind)), std::string("shape")); });
    section("micro-batches", {1, 2, 4}, &MemorySetting::accumulation,
            [](int n) { return std::pair(fmt::to_string(n), std::string("shape")); });
    section("optimizer on", {Tier::device, Tier::host, Tier::nvme}, &MemorySetting::optimizer, [](Tier tier) {
      const std::string name(runtime::kTierNames[static_cast<std::size_t>(tier)]);
      return std::pair(name, "shape " + name);
    });
    return out_;
  }

 private:
  template <typename T, typename Say>
  void section(const char* title, std::initializer_list<T> values, T MemorySetting::*member, Say&& say) {
    out_ += text(kLegend, y_, title, " font-weight=\"600\"");
    y_ += 22;
    for (const T value : values) {
      const auto has = [&](const MemoryRow* row) { return row->setting.*member == value; };
      if (std::none_of(rows_.begin(), rows_.end(), has)) continue;
      const auto [name, classes] = say(value);
      Kind kind = Kind::none;
      double radius = 6;
      if constexpr (std::is_same_v<T, Kind>) kind = value;
      if constexpr (std::is_same_v<T, int>) radius = radius_of(value);
      out_ += shape(kind, kLegend + 8, y_ - 4.5, radius, classes) + text(kLegend + 26, y_, name);
      y_ += 21;
    }
    y_ += 12;
  }

  const std::vector<const MemoryRow*>& rows_;
  std::string out_;
  double y_ = kTop + 8;
};

}  // namespace

std::string memory_chart(const std::vector<MemoryRow>& rows, MemoryOf of, const std::string& title,
                         const std::string& device) {
  std::vector<const MemoryRow*> ran;
  for (const MemoryRow& row : rows)
    if (row.result) ran.push_back(&row);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" "
      "data-by=\"strata bench memory\">\n<title>{}</title>\n{}",
      kWidth, kHeight, kWidth, kHeight, escaped(title), kStyle);
  out += text(24, 36, title, " class=\"title\"");
  if (ran.empty()) return out + text(24, 62, "no setting ran") + "</svg>\n";

  const auto least = [&](auto&& value) {
    return *std::min_element(ran.begin(), ran.end(),
                             [&](const MemoryRow* a, const MemoryRow* b) { return value(*a) < value(*b); });
  };
  const auto time = [](const MemoryRow& row) { return row.result->step_ms; };
  const auto bytes = [&](const MemoryRow& row) { return measured_bytes(row, of); };
  const MemoryRow *fastest = least(time), *smallest = least(bytes);
  out += text(24, 58, "fastest: " + setting_words(fastest->setting), " class=\"quiet\"");
  out += text(24, 76, "least memory: " + setting_words(smallest->setting), " class=\"quiet\"");
  out += text(24, kHeight - 8, device, " class=\"quiet\"");

  double max_ms = 0, max_bytes = 0;
  for (const MemoryRow* row : ran) {
    max_ms = std::max(max_ms, time(*row));
    max_bytes = std::max(max_bytes, static_cast<double>(bytes(*row)));
  }
  constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;
  const double unit = max_bytes < 2 * kGiB ? kMiB : kGiB;
  Scale x(max_bytes / unit, kLeft, kRight);
  x.most *= unit;
  x.distance *= unit;
  const Scale y(max_ms, kBottom, kTop);
  out += axes(x, y, unit, unit == kMiB ? "MiB" : "GiB", of);
  // Draw large markers first, so that none hides a smaller one.
  std::stable_sort(ran.begin(), ran.end(), [](const MemoryRow* a, const MemoryRow* b) {
    return a->setting.accumulation < b->setting.accumulation;
  });
  for (const MemoryRow* row : ran) out += dot(*row, of, x, y);
  return out + Legend(ran).draw() + "</svg>\n";
}

}  // namespace strata::launcher

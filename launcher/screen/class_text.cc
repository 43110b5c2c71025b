#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/run_text.h"

namespace strata::launcher {
namespace {

constexpr std::size_t kMaxRows = 40, kMaxColumns = 40, kLongestName = 30, kGap = 2;

std::string cut(const std::string& name, std::size_t most) {
  return printable(beginning_of(name, most));
}

std::string metrics_text(const runtime::ClassReport& report, std::size_t columns) {
  std::string out;
  std::size_t used = 0;
  for (const auto& [name, value] : report.metrics) {
    const std::string one = fmt::format("{} {}", name.substr(std::string_view("eval_").size()), value_text(value, 4));
    const bool first = out.empty(), breaks = used + kGap + one.size() > columns;
    out += first ? "" : breaks ? "\n" : "  ";
    used = first || breaks ? one.size() : used + kGap + one.size();
    out += one;
  }
  return out + "\n";
}

std::string confusion_text(const runtime::ClassReport& report, std::span<const std::string> names,
                           std::size_t columns) {
  std::uint64_t most = 0;
  for (const auto& row : report.confusion) most = std::max(most, *std::max_element(row.begin(), row.end()));
  std::vector<std::string> rows, heads;
  std::size_t left = 0, column = fmt::formatted_size("{}", most);
  const auto lay_out = [&](bool numbers) {
    rows.clear(), heads.clear();
    left = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      heads.push_back(numbers ? fmt::format("{}", i) : cut(names[i], kLongestName));
      rows.push_back(numbers ? fmt::format("{} {}", i, cut(names[i], kLongestName)) : heads.back());
      left = std::max(left, rows.back().size());
      column = std::max(column, heads.back().size());
    }
    return left + names.size() * (column + kGap) <= columns;
  };
  const std::size_t counts = column;
  bool fits = lay_out(false);
  const bool numbers = !fits;
  if (!fits) {
    column = counts;
    fits = lay_out(true);
  }
  if (!fits)
    return fmt::format("the confusion matrix of {} classes is wider than {} columns: --json FILE has it\n",
                       names.size(), columns);
  std::string out =
      fmt::format("{:{}}  predicted{}\n{:{}}", "actual", left, numbers ? ", by class number" : "", "", left);
  for (const std::string& head : heads) out += fmt::format("  {:>{}}", head, column);
  out += "\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += fmt::format("{:{}}", rows[i], left);
    for (const std::uint64_t count : report.confusion[i]) out += fmt::format("  {:{}}", count, column);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string class_text(const runtime::ClassReport& report, std::span<const std::string> names, std::string_view of,
                       std::size_t columns) {
  std::string out = metrics_text(report, columns);
  if (report.classes.empty()) return out;
  std::size_t width = std::string_view("class").size();
  for (const std::string& name : names) width = std::max(width, cut(name, kLongestName).size());
  out += fmt::format("\n{:{}}  precision  recall      f1  {:>5}\n", "class", width, of);
  for (std::size_t i = 0; i < std::min(report.classes.size(), kMaxRows); ++i) {
    const runtime::ClassQuality& q = report.classes[i];
    out += fmt::format("{:{}}  {:9.4f}  {:6.4f}  {:6.4f}  {:5}\n", cut(names[i], kLongestName), width, q.precision,
                       q.recall, q.f1, q.support);
  }
  if (report.classes.size() > kMaxRows)
    out += fmt::format("... ({} classes; --json FILE has all)\n", report.classes.size());
  if (report.confusion.empty() || report.confusion.size() > kMaxColumns) return out;
  return out + "\n" + confusion_text(report, names, columns);
}

}  // namespace strata::launcher

#include "runtime/run/metrics/class_curves.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kWordBits = 32;

}  // namespace

void log_odds(std::span<const float> scores, std::span<double> out) {
  STRATA_CHECK_EQ(scores.size(), out.size());
  const double most = *std::max_element(scores.begin(), scores.end());
  // 1 - p is computed as the sum of the other probabilities, because the difference would lose all digits if p is
  // nearly 1. First, out[c] is the sum of the classes before c.
  double before = 0;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    out[c] = before;
    before += std::exp(scores[c] - most);
  }
  double after = 0;
  for (std::size_t c = scores.size(); c-- > 0;) {
    const double others = out[c] + after;
    after += std::exp(scores[c] - most);
    out[c] = scores[c] - most - std::log(others);
  }
}

std::optional<double> area_under_curve(std::span<double> positive, std::span<double> negative) {
  if (positive.empty() || negative.empty()) return std::nullopt;
  std::sort(positive.begin(), positive.end());
  std::sort(negative.begin(), negative.end());
  // Pairs of a positive and a negative in the right order count 2, equal ones 1: whole numbers, so the sum is exact.
  unsigned __int128 twice = 0;
  auto below = negative.begin(), not_above = below;
  for (const double score : positive) {
    while (below != negative.end() && *below < score) ++below;
    while (not_above != negative.end() && *not_above <= score) ++not_above;
    twice += static_cast<unsigned __int128>((below - negative.begin()) + (not_above - negative.begin()));
  }
  return static_cast<double>(twice) / (2 * static_cast<double>(positive.size()) * static_cast<double>(negative.size()));
}

ClassCurves::ClassCurves(std::span<double> columns, std::span<std::uint32_t> labels, std::size_t first,
                         std::size_t step, std::size_t classes, bool many)
    : columns_(columns),
      labels_(labels),
      first_(first),
      step_(step),
      classes_(classes),
      many_(many),
      label_words_(many ? (classes + kWordBits - 1) / kWordBits : 1),
      rows_(labels.size() / label_words_) {
  const std::size_t own = first_ < classes_ ? (classes_ - first_ + step_ - 1) / step_ : 0;
  STRATA_CHECK_LE(own * rows_, columns_.size());
}

bool ClassCurves::is(std::size_t row, std::size_t c) const {
  const auto label = labels_.subspan(row * label_words_, label_words_);
  return many_ ? (label[c / kWordBits] >> c % kWordBits & 1) != 0 : label[0] == c;
}

void ClassCurves::add(std::span<const std::uint32_t> label, std::span<const double> scores) {
  STRATA_CHECK_LT(used_, rows_);
  STRATA_CHECK_EQ(label.size(), label_words_);
  std::ranges::copy(label, labels_.subspan(used_ * label_words_).begin());
  std::size_t column = 0;
  for (std::size_t c = first_; c < classes_; c += step_, ++column) columns_[column * rows_ + used_] = scores[c];
  ++used_;
}

std::vector<std::optional<double>> ClassCurves::areas() {
  std::vector<std::optional<double>> out;
  std::size_t column = 0;
  for (std::size_t c = first_; c < classes_; c += step_, ++column) {
    const std::span<double> scores = columns_.subspan(column * rows_, used_);
    // Moves the scores of the class to the front. Places that were passed are not read again, so labels need not move.
    std::size_t begin = 0, end = used_;
    for (;; ++begin) {
      while (begin < end && is(begin, c)) ++begin;
      while (begin < end && !is(end - 1, c)) --end;
      if (begin >= end) break;
      std::swap(scores[begin], scores[--end]);
    }
    out.push_back(area_under_curve(scores.first(begin), scores.subspan(begin)));
  }
  return out;
}

}  // namespace strata::runtime

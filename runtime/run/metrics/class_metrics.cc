#include "runtime/run/metrics/class_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kBitsPerWord = 32;

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

ClassQuality ClassTally::Counts::quality() const {
  const auto right = static_cast<double>(found);
  ClassQuality out{ratio(right, static_cast<double>(said)), ratio(right, static_cast<double>(there)), 0, there};
  out.f1 = ratio(2 * right, static_cast<double>(said + there));
  return out;
}

ClassTally::ClassTally(std::size_t classes, Confusion confusion) : counts_(classes) {
  if (confusion == Confusion::counted) confusion_.assign(classes, std::vector<std::uint64_t>(classes));
}

void ClassTally::clear() {
  std::ranges::fill(counts_, Counts{});
  for (auto& row : confusion_) std::ranges::fill(row, 0u);
  right_ = documents_ = 0;
}

void ClassTally::add_one(std::size_t label, std::size_t said) {
  STRATA_CHECK_LT(label, counts_.size());
  STRATA_CHECK_LT(said, counts_.size());
  if (!confusion_.empty()) ++confusion_[label][said];
  ++counts_[label].there;
  ++counts_[said].said;
  ++documents_;
  if (said != label) return;
  ++counts_[label].found;
  ++right_;
}

void ClassTally::add_many(std::span<const std::uint32_t> label, std::span<const std::uint32_t> said) {
  STRATA_CHECK_EQ(label.size(), said.size());
  STRATA_CHECK_LE(counts_.size(), kBitsPerWord * label.size());
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const std::uint32_t there = label[c / kBitsPerWord] >> c % kBitsPerWord & 1,
                        is_said = said[c / kBitsPerWord] >> c % kBitsPerWord & 1;
    counts_[c].there += there;
    counts_[c].said += is_said;
    counts_[c].found += there & is_said;
  }
  ++documents_;
  right_ += std::ranges::equal(label, said) ? 1 : 0;
}

ClassMetrics ClassTally::with_averages(Among among) const {
  ClassMetrics out;
  out.accuracy = ratio(static_cast<double>(right_), static_cast<double>(documents_));
  std::size_t averaged = 0;
  Counts sum;
  for (const Counts& one : counts_) {
    const ClassQuality& quality = out.classes.emplace_back(one.quality());
    if (among == Among::seen && one.there + one.said == 0) {
      out.unseen.push_back(out.classes.size() - 1);
      continue;
    }
    ++averaged;
    out.macro.precision += quality.precision;
    out.macro.recall += quality.recall;
    out.macro.f1 += quality.f1;
    out.macro.support += quality.support;
    sum.found += one.found;
    sum.said += one.said;
    sum.there += one.there;
  }
  const auto n = static_cast<double>(averaged);
  out.macro = {ratio(out.macro.precision, n), ratio(out.macro.recall, n), ratio(out.macro.f1, n), out.macro.support};
  out.micro = sum.quality();
  return out;
}

double ClassTally::matthews() const {
  const auto right = static_cast<double>(right_), all = static_cast<double>(documents_);
  double both = 0, said_squares = 0, there_squares = 0;
  for (const Counts& of_class : counts_) {
    const auto said = static_cast<double>(of_class.said), there = static_cast<double>(of_class.there);
    both += said * there;
    said_squares += said * said;
    there_squares += there * there;
  }
  const double under = std::sqrt(all * all - said_squares) * std::sqrt(all * all - there_squares);
  return ratio(right * all - both, under);
}

ClassMetrics ClassTally::of_one() const {
  ClassMetrics out = with_averages(Among::seen);
  out.matthews = matthews();
  out.confusion = confusion_;
  return out;
}

ClassMetrics ClassTally::of_many() const {
  return with_averages(Among::all);
}

std::size_t best_of(std::span<const float> scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

void all_of(std::span<const float> scores, std::span<std::uint32_t> out) {
  std::ranges::fill(out, 0u);
  for (std::size_t c = 0; c < scores.size(); ++c)
    if (scores[c] >= 0) out[c / kBitsPerWord] |= std::uint32_t{1} << c % kBitsPerWord;
}

RegressionMetrics metrics_of_numbers(std::span<const float> predictions, std::span<const float> labels) {
  STRATA_CHECK_EQ(predictions.size(), labels.size());
  const auto n = static_cast<double>(labels.size());
  RegressionMetrics out;
  double mean_x = 0, mean_y = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double error = static_cast<double>(predictions[i]) - static_cast<double>(labels[i]);
    out.mean_squared_error += error * error / n;
    out.mean_absolute_error += std::abs(error) / n;
    mean_x += predictions[i] / n;
    mean_y += labels[i] / n;
  }
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double x = predictions[i] - mean_x, y = labels[i] - mean_y;
    xx += x * x;
    yy += y * y;
    xy += x * y;
  }
  if (xx > 0 && yy > 0) out.pearson = xy / (std::sqrt(xx) * std::sqrt(yy));
  return out;
}

}  // namespace strata::runtime

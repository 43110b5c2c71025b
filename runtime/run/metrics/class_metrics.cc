#include "runtime/run/metrics/class_metrics.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kWordBits = 32;

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

// True if class c is in a set: bit c % 32 of word c / 32.
bool has_class(std::span<const std::uint32_t> set, std::size_t c) {
  return (set[c / kWordBits] >> c % kWordBits & 1) != 0;
}

}  // namespace

ClassCounts& ClassCounts::operator+=(const ClassCounts& other) {
  found += other.found;
  predicted += other.predicted;
  labelled += other.labelled;
  return *this;
}

ClassQuality ClassCounts::quality() const {
  const auto right = static_cast<double>(found);
  return {ratio(right, static_cast<double>(predicted)), ratio(right, static_cast<double>(labelled)),
          ratio(2 * right, static_cast<double>(predicted + labelled)), labelled};
}

ClassTally::ClassTally(std::size_t classes, Confusion confusion) : counts_(classes) {
  if (confusion == Confusion::counted) confusion_.assign(classes, std::vector<std::uint64_t>(classes));
}

void ClassTally::clear() {
  std::ranges::fill(counts_, ClassCounts{});
  for (auto& row : confusion_) std::ranges::fill(row, 0u);
  right_ = documents_ = 0;
}

void ClassTally::add_one(std::size_t label, std::size_t prediction) {
  STRATA_CHECK_LT(label, counts_.size());
  STRATA_CHECK_LT(prediction, counts_.size());
  if (!confusion_.empty()) ++confusion_[label][prediction];
  ++counts_[label].labelled;
  ++counts_[prediction].predicted;
  ++documents_;
  if (prediction != label) return;
  ++counts_[label].found;
  ++right_;
}

void ClassTally::add_many(std::span<const std::uint32_t> label, std::span<const std::uint32_t> prediction) {
  STRATA_CHECK_EQ(label.size(), prediction.size());
  STRATA_CHECK_LE(counts_.size(), kWordBits * label.size());
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const bool labelled = has_class(label, c), predicted = has_class(prediction, c);
    counts_[c] += {labelled && predicted, predicted, labelled};
  }
  ++documents_;
  right_ += std::ranges::equal(label, prediction) ? 1 : 0;
}

ClassMetrics ClassTally::with_averages(Among among) const {
  ClassMetrics out;
  out.accuracy = ratio(static_cast<double>(right_), static_cast<double>(documents_));
  std::size_t averaged = 0;
  ClassCounts sum;
  for (const ClassCounts& one : counts_) {
    const ClassQuality& quality = out.classes.emplace_back(one.quality());
    if (among == Among::seen && one.labelled + one.predicted == 0) {
      out.unseen.push_back(out.classes.size() - 1);
      continue;
    }
    ++averaged;
    out.macro.precision += quality.precision;
    out.macro.recall += quality.recall;
    out.macro.f1 += quality.f1;
    out.macro.support += quality.support;
    sum += one;
  }
  const auto n = static_cast<double>(averaged);
  out.macro = {ratio(out.macro.precision, n), ratio(out.macro.recall, n), ratio(out.macro.f1, n), out.macro.support};
  out.micro = sum.quality();
  return out;
}

double ClassTally::matthews() const {
  const auto right = static_cast<double>(right_), all = static_cast<double>(documents_);
  double both = 0, predicted_squares = 0, labelled_squares = 0;
  for (const ClassCounts& of_class : counts_) {
    const auto predicted = static_cast<double>(of_class.predicted), labelled = static_cast<double>(of_class.labelled);
    both += predicted * labelled;
    predicted_squares += predicted * predicted;
    labelled_squares += labelled * labelled;
  }
  const double under = std::sqrt(all * all - predicted_squares) * std::sqrt(all * all - labelled_squares);
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
    if (scores[c] >= 0) out[c / kWordBits] |= std::uint32_t{1} << c % kWordBits;
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
  return many_ ? has_class(label, c) : label[0] == c;
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

EntityTags::EntityTags(std::span<const std::string> names) {
  std::vector<std::string_view> types;
  for (const std::string& name : names) {
    const bool inside = name != "O";
    const std::string_view type = inside ? std::string_view(name).substr(2) : std::string_view();
    auto found = std::ranges::find(types, type);
    if (found == types.end()) found = types.insert(types.end(), type);
    tags_.push_back({inside, name.starts_with('B'), static_cast<std::size_t>(found - types.begin())});
  }
}

std::vector<Entity> EntityTags::entities(std::span<const std::size_t> words) const {
  std::vector<Entity> out;
  bool open = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Tag& tag = tags_[words[i]];
    const bool continues = open && tag.inside && !tag.begins && tag.type == out.back().type;
    if (tag.inside && !continues) out.push_back({i, i, tag.type});
    open = tag.inside;
    if (open) out.back().end = i + 1;
  }
  return out;
}

void EntityTally::add(std::span<const std::size_t> labels, std::span<const std::size_t> predictions) {
  STRATA_CHECK_EQ(labels.size(), predictions.size());
  const std::vector<Entity> labelled = tags_.entities(labels), predicted = tags_.entities(predictions);
  counts_.labelled += labelled.size();
  counts_.predicted += predicted.size();
  // Both lists are ordered by beginnings, and no two beginnings in a list are equal.
  for (std::size_t i = 0, j = 0; i < labelled.size() && j < predicted.size();) {
    counts_.found += labelled[i] == predicted[j] ? 1 : 0;
    const std::size_t a = labelled[i].begin, b = predicted[j].begin;
    i += a <= b ? 1 : 0;
    j += b <= a ? 1 : 0;
  }
}

}  // namespace strata::runtime

#include "runtime/run/metrics/class_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace strata::runtime {
namespace {

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

// Of a class: documents of it that were found, that were said to be of it, and that there are.
struct Counts {
  std::uint64_t found = 0, said = 0, there = 0;

  ClassQuality quality() const {
    const auto right = static_cast<double>(found);
    ClassQuality out{ratio(right, static_cast<double>(said)), ratio(right, static_cast<double>(there)), 0, there};
    out.f1 = ratio(2 * right, static_cast<double>(said + there));
    return out;
  }
};

// Averages over classes leave out those that no document is or was said to be of, if `among` says so: scikit-learn does
// of one class each, where it takes the classes from the documents.
enum class Among : std::uint8_t { all, seen };

void add_averages(const std::vector<Counts>& counts, Among among, ClassMetrics& out) {
  std::size_t averaged = 0;
  Counts sum;
  for (const Counts& one : counts) {
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
}

std::size_t best_of(std::span<const float> scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// log(p / (1 - p)) of class c's probability p, which orders documents as p does.
double log_odds(std::span<const float> scores, std::size_t c) {
  const double most = *std::max_element(scores.begin(), scores.end());
  double others = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (i != c) others += std::exp(scores[i] - most);
  return scores[c] - most - std::log(others);
}

// The mean over classes of score(document, class) against is(document, class).
template <typename Score, typename Is>
void add_areas(std::size_t documents, std::size_t first, std::size_t classes, Score&& score, Is&& is,
               ClassMetrics& out) {
  std::vector<double> scores(documents);
  std::vector<bool> positive(documents);
  double sum = 0;
  for (std::size_t c = first; c < classes; ++c) {
    for (std::size_t i = 0; i < documents; ++i) {
      scores[i] = score(i, c);
      positive[i] = is(i, c);
    }
    const auto area = area_under_curve(scores, positive);
    if (!area) {
      out.without_curve = c;
      return;
    }
    sum += *area;
  }
  out.roc_auc = sum / static_cast<double>(classes - first);
}

double matthews_of(const std::vector<std::vector<std::uint64_t>>& confusion) {
  double right = 0, all = 0, both = 0, said_squares = 0, there_squares = 0;
  for (std::size_t c = 0; c < confusion.size(); ++c) {
    double said = 0, there = 0;
    for (std::size_t other = 0; other < confusion.size(); ++other) {
      said += static_cast<double>(confusion[other][c]);
      there += static_cast<double>(confusion[c][other]);
    }
    right += static_cast<double>(confusion[c][c]);
    all += there;
    both += said * there;
    said_squares += said * said;
    there_squares += there * there;
  }
  const double under = std::sqrt(all * all - said_squares) * std::sqrt(all * all - there_squares);
  return ratio(right * all - both, under);
}

}  // namespace

std::optional<double> area_under_curve(std::span<const double> scores, const std::vector<bool>& positive) {
  STRATA_CHECK_EQ(scores.size(), positive.size());
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  // Pairs of a positive and a negative that are in the right order count 2, equal ones 1: whole numbers, so exact.
  unsigned __int128 twice = 0;
  std::uint64_t positives = 0, negatives = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    std::uint64_t p = 0, n = 0;
    for (; end < order.size() && scores[order[end]] == scores[order[begin]]; ++end) ++(positive[order[end]] ? p : n);
    twice += static_cast<unsigned __int128>(p) * (2 * negatives + n);
    positives += p;
    negatives += n;
  }
  if (positives == 0 || negatives == 0) return std::nullopt;
  return static_cast<double>(twice) / (2 * static_cast<double>(positives) * static_cast<double>(negatives));
}

ClassMetrics metrics_of_one(const ClassScores& scores) {
  const std::size_t n = scores.documents(), k = scores.classes;
  STRATA_CHECK_EQ(scores.scores.size(), n * k);
  ClassMetrics out;
  out.confusion.assign(k, std::vector<std::uint64_t>(k));
  std::vector<Counts> counts(k);
  std::uint64_t right = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto label = static_cast<std::size_t>(scores.labels[i]);
    STRATA_CHECK_LT(label, k);
    const std::size_t said = best_of(scores.of(i));
    ++out.confusion[label][said];
    ++counts[label].there;
    ++counts[said].said;
    if (said != label) continue;
    ++counts[label].found;
    ++right;
  }
  out.accuracy = ratio(static_cast<double>(right), static_cast<double>(n));
  add_averages(counts, Among::seen, out);
  out.matthews = matthews_of(out.confusion);
  add_areas(
      n, k == 2 ? 1 : 0, k, [&](std::size_t i, std::size_t c) { return log_odds(scores.of(i), c); },
      [&](std::size_t i, std::size_t c) { return static_cast<std::size_t>(scores.labels[i]) == c; }, out);
  return out;
}

ClassMetrics metrics_of_many(const ClassScores& scores) {
  const std::size_t n = scores.documents(), k = scores.classes;
  STRATA_CHECK_EQ(scores.scores.size(), n * k);
  ClassMetrics out;
  std::vector<Counts> counts(k);
  const auto is = [&](std::size_t i, std::size_t c) {
    return (static_cast<std::uint32_t>(scores.labels[i]) >> c & 1) != 0;
  };
  std::uint64_t right = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bool all = true;
    for (std::size_t c = 0; c < k; ++c) {
      const bool said = scores.of(i)[c] >= 0, there = is(i, c);
      counts[c].said += said ? 1 : 0;
      counts[c].there += there ? 1 : 0;
      counts[c].found += said && there ? 1 : 0;
      all = all && said == there;
    }
    right += all ? 1 : 0;
  }
  out.accuracy = ratio(static_cast<double>(right), static_cast<double>(n));
  add_averages(counts, Among::all, out);
  add_areas(
      n, 0, k, [&](std::size_t i, std::size_t c) { return scores.of(i)[c]; }, is, out);
  return out;
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

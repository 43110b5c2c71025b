#include "runtime/run/metrics/score_collector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"

namespace strata::runtime {
namespace {

// Classes that a note has room for.
constexpr std::size_t kNamed = 8;

template <typename T>
void append(std::string& to, const std::vector<T>& values) {
  const std::uint64_t count = values.size();
  to.append(reinterpret_cast<const char*>(&count), sizeof count);
  to.append(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}
template <typename T>
std::vector<T> take(std::string_view& from) {
  std::uint64_t count = 0;
  STRATA_CHECK_LE(sizeof count, from.size());
  std::memcpy(&count, from.data(), sizeof count);
  from.remove_prefix(sizeof count);
  STRATA_CHECK_LE(count * sizeof(T), from.size());
  std::vector<T> out(count);
  std::memcpy(out.data(), from.data(), count * sizeof(T));
  from.remove_prefix(count * sizeof(T));
  return out;
}

void add_quality(const ClassMetrics& m, const models::Classes& classes, ClassReport& out) {
  out.metrics = {{"eval_accuracy", m.accuracy},         {"eval_f1", m.macro.f1},
                 {"eval_precision", m.macro.precision}, {"eval_recall", m.macro.recall},
                 {"eval_f1_micro", m.micro.f1},         {"eval_precision_micro", m.micro.precision},
                 {"eval_recall_micro", m.micro.recall}};
  if (m.matthews) out.metrics.emplace_back("eval_matthews", *m.matthews);
  if (m.roc_auc)
    out.metrics.emplace_back("eval_roc_auc", *m.roc_auc);
  else
    out.notes.push_back(
        fmt::format("eval_roc_auc is not computed: data.validation has no text of the class {}, or none of another",
                    classes.names[m.without_curve]));
  if (!m.unseen.empty()) {
    std::vector<std::string> names;
    for (const std::size_t c : std::span(m.unseen).first(std::min<std::size_t>(m.unseen.size(), kNamed)))
      names.push_back(classes.names[c]);
    out.notes.push_back(
        fmt::format("eval_f1, eval_precision and eval_recall leave out {} that no text is of, nor was said to be of: "
                    "{}{}",
                    m.unseen.size() == 1 ? "a class" : fmt::format("{} classes", m.unseen.size()),
                    fmt::join(names, ", "), m.unseen.size() > kNamed ? ", ..." : ""));
  }
  out.classes = m.classes;
  out.confusion = m.confusion;
}

}  // namespace

void ScoreCollector::clear() {
  rows_.clear();
  scores_.clear();
  labels_.clear();
}

void ScoreCollector::add_round(std::span<const float> scores, std::size_t stride,
                               std::span<const std::int32_t> labels) {
  const std::size_t classes = classes_.names.size();
  std::uint32_t rows = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == device::kIgnoredLabel) continue;
    const auto of_row = scores.subspan(row * stride, classes);
    scores_.insert(scores_.end(), of_row.begin(), of_row.end());
    labels_.push_back(labels[row]);
    ++rows;
  }
  rows_.push_back(rows);
}

ClassScores ScoreCollector::gather(comm::World& world) const {
  std::string mine;
  append(mine, rows_);
  append(mine, scores_);
  append(mine, labels_);
  struct Theirs {
    std::vector<std::uint32_t> rows;
    std::vector<float> scores;
    std::vector<std::int32_t> labels;
    std::size_t at = 0;
  };
  std::vector<Theirs> ranks;
  for (const std::string& text : world.exchange(mine)) {
    std::string_view rest = text;
    Theirs& theirs = ranks.emplace_back();
    theirs.rows = take<std::uint32_t>(rest);
    theirs.scores = take<float>(rest);
    theirs.labels = take<std::int32_t>(rest);
  }
  const std::size_t k = classes_.names.size();
  ClassScores all{k, {}, {}};
  for (std::size_t round = 0; round < rows_.size(); ++round)
    for (Theirs& theirs : ranks) {
      const auto begin = static_cast<std::ptrdiff_t>(theirs.at), rows = static_cast<std::ptrdiff_t>(theirs.rows[round]);
      const auto width = static_cast<std::ptrdiff_t>(k);
      all.scores.insert(all.scores.end(), theirs.scores.begin() + begin * width,
                        theirs.scores.begin() + (begin + rows) * width);
      all.labels.insert(all.labels.end(), theirs.labels.begin() + begin, theirs.labels.begin() + begin + rows);
      theirs.at += theirs.rows[round];
    }
  return all;
}

ClassReport ScoreCollector::report(comm::World& world) const {
  const ClassScores all = gather(world);
  ClassReport out;
  if (classes_.target == device::ClassTarget::number) {
    std::vector<float> wanted;
    for (const std::int32_t label : all.labels) wanted.push_back(std::bit_cast<float>(label));
    const RegressionMetrics m = metrics_of_numbers(all.scores, wanted);
    out.metrics = {{"eval_mse", m.mean_squared_error}, {"eval_mae", m.mean_absolute_error}};
    if (m.pearson)
      out.metrics.emplace_back("eval_pearson", *m.pearson);
    else
      out.notes.emplace_back("eval_pearson is not computed: the labels or the predictions are all the same");
    return out;
  }
  add_quality(classes_.target == device::ClassTarget::many ? metrics_of_many(all) : metrics_of_one(all), classes_, out);
  return out;
}

}  // namespace strata::runtime

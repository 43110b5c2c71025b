#include "runtime/run/metrics/score_collector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/exchange_values.h"
#include "device/ops/losses/losses.h"

namespace strata::runtime {

namespace {

using device::ClassTarget;

// The number of classes that fit into a note.
constexpr std::size_t kNamed = 8;

template <typename T>
std::span<T> span_of(std::span<std::byte> bytes, std::size_t at, std::size_t count) {
  STRATA_CHECK_LE(at + count * sizeof(T), bytes.size());
  return {reinterpret_cast<T*>(bytes.data() + at), count};
}

void add_quality(const ClassMetrics& m, const models::Classes& classes, ClassReport& out) {
  out.metrics = {{"eval_accuracy", m.accuracy},         {"eval_f1", m.macro.f1},
                 {"eval_precision", m.macro.precision}, {"eval_recall", m.macro.recall},
                 {"eval_f1_micro", m.micro.f1},         {"eval_precision_micro", m.micro.precision},
                 {"eval_recall_micro", m.micro.recall}};
  if (m.matthews) out.metrics.emplace_back("eval_matthews", *m.matthews);
  if (!m.unseen.empty()) {
    std::vector<std::string> names;
    for (const std::size_t c : std::span(m.unseen).first(std::min<std::size_t>(m.unseen.size(), kNamed)))
      names.push_back(classes.names[c]);
    out.notes.push_back(
        fmt::format("eval_f1, eval_precision and eval_recall leave out {} without a text or a prediction: {}{}",
                    m.unseen.size() == 1 ? "a class" : fmt::format("{} classes", m.unseen.size()),
                    fmt::join(names, ", "), m.unseen.size() > kNamed ? ", ..." : ""));
  }
  out.classes = m.classes;
  out.confusion = m.confusion;
}

}  // namespace

ScoreCollector::ScoreCollector(models::Classes classes, bool words, const ScoreMemory& layout,
                               std::span<std::byte> kept, RowExchange exchange, int rank, int ranks)
    : classes_(std::move(classes)),
      layout_(layout),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(ranks)),
      gather_(std::move(exchange), layout.words, layout.label_words, layout.of_micro_batch, layout.rounds),
      tally_(classes_.target == ClassTarget::number ? 0 : classes_.names.size(),
             layout.curves && !many() ? ClassTally::Confusion::counted : ClassTally::Confusion::left_out) {
  const std::size_t rows = layout.rows;
  if (classes_.target == ClassTarget::number) numbers_ = span_of<float>(kept, 0, 2 * rows);
  if (layout.curves)
    curves_.emplace(span_of<double>(kept, 0, layout.columns * rows),
                    span_of<std::uint32_t>(kept, layout.columns * rows * sizeof(double), layout.label_words * rows),
                    layout.first_curve + rank_, ranks_, classes_.names.size(), many());
  if (words && models::are_entity_tags(classes_.names)) entities_.emplace(classes_.names);
  odds_.resize(classes_.names.size());
  predicted_.resize(layout.label_words);
}

void ScoreCollector::clear() {
  gather_.clear();
  tally_.clear();
  if (curves_) curves_->clear();
  if (entities_) entities_->clear();
  count_ = 0;
}

void ScoreCollector::add_round(std::span<const float> scores, std::size_t stride, std::span<const std::int32_t> labels,
                               std::span<const std::uint32_t> sets, std::span<const device::RowRange> documents,
                               std::size_t seq_len) {
  const std::size_t k = classes_.names.size(), words = layout_.label_words;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == device::kIgnoredLabel) continue;
    const auto of_row = scores.subspan(row * stride, k);
    const auto own = static_cast<std::uint32_t>(labels[row]);
    const auto label = sets.empty() ? std::span(&own, 1) : sets.subspan(row * words, words);
    if (layout_.words == words + k) {
      gather_.add(label, of_row);
      continue;
    }
    // With this many classes, only the predicted classes are sent, not the scores.
    if (many())
      all_of(of_row, predicted_);
    else
      predicted_[0] = static_cast<std::uint32_t>(best_of(of_row));
    gather_.add(label, {reinterpret_cast<const float*>(predicted_.data()), words});
  }
  if (entities_) add_entities(scores, stride, labels, documents, seq_len);
  gather_.end_round([this](auto label, auto sent) { take(label, sent); });
}

// A text is never split between micro-batches.
void ScoreCollector::add_entities(std::span<const float> scores, std::size_t stride,
                                  std::span<const std::int32_t> labels, std::span<const device::RowRange> documents,
                                  std::size_t seq_len) {
  std::vector<std::size_t> labelled, predicted;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] != device::kIgnoredLabel) {
      labelled.push_back(static_cast<std::size_t>(labels[row]));
      predicted.push_back(best_of(scores.subspan(row * stride, classes_.names.size())));
    }
    const std::size_t next = row + 1;
    if (next < labels.size() && next % seq_len != 0 && documents[next] == documents[row]) continue;
    if (!labelled.empty()) entities_->add(labelled, predicted);
    labelled.clear();
    predicted.clear();
  }
}

void ScoreCollector::take(std::span<const std::uint32_t> label, std::span<const float> sent) {
  if (classes_.target == ClassTarget::number) {
    STRATA_CHECK_LT(count_, layout_.rows);
    numbers_[count_] = std::bit_cast<float>(label[0]);
    numbers_[layout_.rows + count_] = sent[0];
    ++count_;
    return;
  }
  if (!curves_) {
    std::memcpy(predicted_.data(), sent.data(), sent.size_bytes());
    if (many())
      tally_.add_many(label, predicted_);
    else
      tally_.add_one(label[0], predicted_[0]);
    return;
  }
  if (many()) {
    all_of(sent, predicted_);
    tally_.add_many(label, predicted_);
    std::ranges::copy(sent, odds_.begin());
  } else {
    tally_.add_one(label[0], best_of(sent));
    log_odds(sent, odds_);
  }
  curves_->add(label, odds_);
}

ClassReport ScoreCollector::report_numbers() const {
  ClassReport out;
  const RegressionMetrics m = metrics_of_numbers(numbers_.subspan(layout_.rows, count_), numbers_.first(count_));
  out.metrics = {{"eval_mse", m.mean_squared_error}, {"eval_mae", m.mean_absolute_error}};
  if (m.pearson)
    out.metrics.emplace_back("eval_pearson", *m.pearson);
  else
    out.notes.emplace_back("eval_pearson is not computed: the labels or the predictions are all the same");
  return out;
}

// Rank r computes the areas of classes first_curve + r, first_curve + r + ranks, and so on.
void ScoreCollector::add_areas(comm::World& world, ClassReport& out) {
  const std::size_t curves = classes_.names.size() - layout_.first_curve;
  // Every rank sends the same number of values. The last ones may belong to no class.
  std::vector<std::optional<double>> mine = curves_->areas();
  mine.resize((curves + ranks_ - 1) / ranks_);
  const std::vector<std::optional<double>> all = comm::exchange_values<std::optional<double>>(world, mine);
  double sum = 0;
  for (std::size_t i = 0; i < curves; ++i) {
    const std::optional<double>& area = all[i % ranks_ * mine.size() + i / ranks_];
    if (!area) {
      out.notes.push_back(fmt::format(
          "eval_roc_auc is not computed: data.validation has no text of the class {}, or no text of any other class",
          classes_.names[layout_.first_curve + i]));
      return;
    }
    sum += *area;
  }
  out.metrics.emplace_back("eval_roc_auc", sum / static_cast<double>(curves));
}

void ScoreCollector::add_entity_metrics(comm::World& world, ClassReport& out) const {
  ClassCounts sum;
  for (const ClassCounts& counts : comm::exchange_value(world, entities_->counts())) sum += counts;
  const ClassQuality quality = sum.quality();
  out.metrics.emplace_back("eval_overall_precision", quality.precision);
  out.metrics.emplace_back("eval_overall_recall", quality.recall);
  out.metrics.emplace_back("eval_overall_f1", quality.f1);
}

ClassReport ScoreCollector::report(comm::World& world) {
  gather_.flush([this](auto label, auto sent) { take(label, sent); });
  if (classes_.target == ClassTarget::number) return report_numbers();
  ClassReport out;
  add_quality(many() ? tally_.of_many() : tally_.of_one(), classes_, out);
  if (curves_)
    add_areas(world, out);
  else
    out.notes.push_back(fmt::format("{} left out: the model has {} classes, but {} computed for at most {}",
                                    many() ? "eval_roc_auc is" : "the confusion matrix and eval_roc_auc are",
                                    classes_.names.size(), many() ? "it is" : "they are", kMaxTabled));
  if (entities_) add_entity_metrics(world, out);
  return out;
}

}  // namespace strata::runtime

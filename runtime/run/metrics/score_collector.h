#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "device/row_range.h"
#include "models/classes.h"
#include "runtime/job/score_memory.h"
#include "runtime/run/metrics/class_metrics.h"
#include "runtime/run/metrics/row_gather.h"

namespace strata::runtime {

// An evaluation's results for a classifier, in addition to its loss.
struct ClassReport {
  std::vector<std::pair<std::string, double>> metrics;  // "eval_accuracy", ..., as a run reports them
  std::vector<std::string> notes;                       // metrics that could not be computed, and why
  // Each class's quality, and the confusion matrix [label][prediction] if each text has one class. Both are empty for a
  // regression; the matrix is empty for more than kMaxTabled classes, too.
  std::vector<ClassQuality> classes;
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Gathers a model's scores for an evaluation's rows over rounds and ranks, and computes metrics from them, with the
// same bits on every rank and for any number of ranks.
class ScoreCollector {
 public:
  // words: true if classes belong to words. They may then be tags of entities. kept: layout.bytes, aligned to a page.
  // `kept` and what `exchange` refers to must outlive this object.
  ScoreCollector(models::Classes classes, bool words, const ScoreMemory& layout, std::span<std::byte> kept,
                 RowExchange exchange, int rank, int ranks);

  const models::Classes& classes() const { return classes_; }
  void clear();
  // Adds the rows of this rank's round, none on a rank without the head. Scores are `stride` apart; rows with labels
  // that do not count are left out. sets: the rows' sets of classes, as in the batch. documents: those of all rows of
  // the micro-batch, whose sequences have seq_len rows; used for words only. Collective.
  void add_round(std::span<const float> scores, std::size_t stride, std::span<const std::int32_t> labels,
                 std::span<const std::uint32_t> sets, std::span<const device::RowRange> documents, std::size_t seq_len);
  // Call it after the last round. Collective.
  ClassReport report(comm::World& world);

 private:
  // `sent`: a row's scores, or the bits of the classes predicted from them.
  void take(std::span<const std::uint32_t> label, std::span<const float> sent);
  void add_entities(std::span<const float> scores, std::size_t stride, std::span<const std::int32_t> labels,
                    std::span<const device::RowRange> documents, std::size_t seq_len);
  ClassReport report_numbers() const;
  void add_areas(comm::World& world, ClassReport& out);
  void add_entity_metrics(comm::World& world, ClassReport& out) const;
  bool many() const { return classes_.target == device::ClassTarget::many; }

  models::Classes classes_;
  ScoreMemory layout_;
  std::size_t rank_, ranks_;
  RowGather gather_;
  ClassTally tally_;
  std::optional<ClassCurves> curves_;
  std::optional<EntityTally> entities_;  // the entities of this rank's texts
  std::span<float> numbers_;             // regression: labels in the first half, predictions in the second
  std::size_t count_ = 0;                // the number of either
  std::vector<double> odds_;
  std::vector<std::uint32_t> predicted_;  // the set of predicted classes of a row
};

}  // namespace strata::runtime

#pragma once
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
#include "runtime/run/metrics/class_curves.h"
#include "runtime/run/metrics/class_metrics.h"
#include "runtime/run/metrics/entity_metrics.h"
#include "runtime/run/metrics/row_gather.h"

namespace strata::runtime {

// What an evaluation says of a classifier beside its loss.
struct ClassReport {
  std::vector<std::pair<std::string, double>> metrics;  // "eval_accuracy", ..., as a run reports them
  std::vector<std::string> notes;                       // what could not be computed, and why
  // Of classes: each one's quality, and [label][prediction] if each text has one. Empty for a regression, and the
  // latter also of more than kMostTabled classes.
  std::vector<ClassQuality> classes;
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Gathers what a model says of an evaluation's rows over its rounds and ranks, and makes metrics of it: the same bits
// on every rank and any number of ranks.
class ScoreCollector {
 public:
  // words: classes are of words, and their tags may be of entities. kept: layout.bytes, aligned as a page; it and what
  // `exchange` names outlive this.
  ScoreCollector(models::Classes classes, bool words, const ScoreMemory& layout, std::span<std::byte> kept,
                 Exchange exchange, int rank, int ranks);

  const models::Classes& classes() const { return classes_; }
  void clear();
  // The rows of a round of this rank: scores lie `stride` apart, labels that do not count are left out. documents: of
  // all rows of the micro-batch, whose sequences have seq_len of them; of words alone. Collective.
  void add_round(std::span<const float> scores, std::size_t stride, std::span<const std::int32_t> labels,
                 std::span<const device::RowRange> documents, std::size_t seq_len);
  // Collective, after the last round.
  ClassReport report(comm::World& world);

 private:
  void take(std::int32_t label, std::span<const float> said);
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
  std::optional<EntityTally> entities_;  // of this rank's texts
  std::span<float> numbers_;             // of a regression: all labels, and from the middle on all predictions
  std::size_t count_ = 0;                // of those
  std::vector<double> odds_;
};

}  // namespace strata::runtime

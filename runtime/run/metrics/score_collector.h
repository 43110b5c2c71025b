#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "models/classes.h"
#include "runtime/run/metrics/class_metrics.h"

namespace strata::runtime {

// What an evaluation says of a classifier beside its loss.
struct ClassReport {
  std::vector<std::pair<std::string, double>> metrics;  // "eval_accuracy", ..., as a run reports them
  std::vector<std::string> notes;                       // what could not be computed, and why
  // Of classes: each one's quality, and [label][prediction] if each text has one. Empty for a regression.
  std::vector<ClassQuality> classes;
  std::vector<std::vector<std::uint64_t>> confusion;
};

// Gathers the scores of an evaluation's rows over its rounds and ranks.
class ScoreCollector {
 public:
  explicit ScoreCollector(models::Classes classes) : classes_(std::move(classes)) {}

  const models::Classes& classes() const { return classes_; }
  void clear();
  // The rows of a round of this rank: scores lie `stride` apart, labels that do not count are left out.
  void add_round(std::span<const float> scores, std::size_t stride, std::span<const std::int32_t> labels);
  // What was added, of all ranks, in the order of micro-batches. Collective.
  ClassScores gather(comm::World& world) const;
  // The same on every rank, whatever their number: rows count in the order of micro-batches. Collective.
  ClassReport report(comm::World& world) const;

 private:
  models::Classes classes_;
  std::vector<std::uint32_t> rows_;  // of each round
  std::vector<float> scores_;
  std::vector<std::int32_t> labels_;
};

}  // namespace strata::runtime

#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/data/sequences/stream_sequences.h"
#include "runtime/execute/executor.h"
#include "runtime/job/score_memory.h"
#include "runtime/plan/job.h"
#include "runtime/run/index_memory.h"
#include "runtime/run/metrics/score_collector.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// The result of an evaluation, the same on all ranks except for the speed.
struct Evaluation {
  double loss;        // mean over all labels, in nats
  double perplexity;  // e^loss
  std::uint64_t labels, sequences;
  double tokens_per_s;       // labels of all ranks; reading the weights does not count
  ClassReport classes = {};  // only for a classifier
};

// The weights that an evaluation of the job uses: the newest undamaged checkpoint in checkpoint.dir, or what
// checkpoint.resume names, otherwise the initial weights. On rank 0, `note` receives their origin and the checkpoints
// that were passed over. Collective.
std::unique_ptr<WeightSource> weights_to_evaluate(const Job& job, comm::World& world, int threads, const Note& note);

// The loss of a model on data.validation. With W ranks, each runs the forward of every W-th micro-batch, and losses are
// added exactly, so the result has the same bits for any number of ranks, any placement and any number of threads.
// Collective. Job (made for Purpose::evaluate) and world must outlive it.
class Evaluator {
 public:
  // algorithms: as agreed on (runtime/job/search/algorithms.h). advance: progress of reading the weights. opened:
  // data.validation, if it was opened before the plan was made.
  Evaluator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
            std::shared_ptr<const device::AlgorithmTable> algorithms = {}, const Advance& advance = {},
            std::unique_ptr<Sequences> opened = {});
  // Evaluates the weights of a training run; call it only while that is drained. `job`: Job::evaluation of the run's
  // job; validation: the data that the run opened.
  Evaluator(const Job& job, comm::World& world, Executor& training, std::unique_ptr<Sequences> validation);

  // Called with the number of finished rounds. False, which all ranks must return together, stops the evaluation. An
  // exception ends the run.
  using AfterRound = std::function<bool(std::uint64_t done, std::uint64_t all)>;
  // nullopt if it was stopped. Throws AgreedError on all ranks if the loss is not finite.
  std::optional<Evaluation> run(const AfterRound& after_round);

  // For a classifier whose labels are numbers of documents (models::kPrediction). Called with the labels and scores of
  // all ranks' rows, in the order of micro-batches, and the number of finished micro-batches. False, which all ranks
  // must return together, stops it.
  using TakeScores =
      std::function<bool(std::span<const std::int32_t> labels, std::span<const float> scores, std::uint64_t done)>;
  // first: the micro-batch to begin with.
  void predict(std::uint64_t first, const TakeScores& take);
  // Memory of the plan for the places of predict()'s rows, one per row.
  std::span<RowLocation> places();
  std::uint64_t micro_batches() const { return data_.micro_batches(); }

  // The loss of this rank's micro-batches so far, for progress messages.
  double loss_so_far() const { return labels_so_far_ ? sum_so_far_ / static_cast<double>(labels_so_far_) : 0; }

  const Executor& executor() const { return *executor_; }
  std::uint64_t rounds() const;
  // The names of classes in the order of their scores; empty unless this evaluates a classifier.
  std::span<const std::string> class_names() const;
  // The time that this rank took to read the weights.
  double load_seconds() const { return load_seconds_; }

 private:
  const Job& job_;
  comm::World& world_;
  std::unique_ptr<Executor> executor_;
  std::optional<IndexMemory> index_memory_;  // none unless it has its own plan
  DisjointSequences data_;
  std::optional<ScoreCollector> scores_;  // a classifier's scores
  double load_seconds_ = 0;
  double sum_so_far_ = 0;
  std::uint64_t labels_so_far_ = 0;
};

}  // namespace strata::runtime

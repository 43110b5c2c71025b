#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/note.h"
#include "comm/communicator.h"
#include "runtime/data/sequences/disjoint_sequences.h"
#include "runtime/execute/executor.h"
#include "runtime/job/make_job.h"
#include "runtime/run/index_memory.h"
#include "runtime/run/metrics/score_collector.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// What an evaluation found; the same on all ranks, but for the time.
struct Evaluation {
  double loss;        // mean over all labels, in nats
  double perplexity;  // e^loss
  std::uint64_t labels, sequences;
  double tokens_per_s;       // labels of all ranks; reading the weights is not counted
  ClassReport classes = {};  // of a classifier
};

// The weights that an evaluation of the job is about: of the newest whole checkpoint in checkpoint.dir, or what
// checkpoint.resume names, else the first weights. `note` is told where they come from and what was passed over, on
// rank 0. Collective.
std::unique_ptr<WeightSource> weights_to_evaluate(const Job& job, comm::World& world, int threads, const Note& note);

// Loss of a model on data.validation: every rank runs the forward of every W-th micro-batch, and losses are added
// exactly, so that the result has the same bits for any number of ranks, any placement and any number of threads.
// Collective. Job (made for Purpose::evaluate) and world outlive it.
class Evaluator {
 public:
  // algorithms: as agreed on (runtime/job/algorithms.h). advance: of reading the weights. opened: data.validation, if
  // it was opened before the plan was made.
  Evaluator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
            std::shared_ptr<const device::AlgorithmTable> algorithms = {}, const Advance& advance = {},
            std::unique_ptr<Sequences> opened = {});
  // Of the weights that a training has, whenever it is drained: `job` is Job::evaluation of its job, validation what
  // the training opened.
  Evaluator(const Job& job, comm::World& world, Executor& training, std::unique_ptr<Sequences> validation);

  // Told how many of the rounds are done; false, on all ranks alike, stops the evaluation. What it throws ends the run.
  using AfterRound = std::function<bool(std::uint64_t done, std::uint64_t all)>;
  // nullopt: it was stopped. Throws AgreedError on all ranks if the loss is not finite.
  std::optional<Evaluation> run(const AfterRound& after_round);

  // Of a classifier whose labels are numbers of documents (models::kPrediction): told of the labels and scores of all
  // ranks' rows, in the order of micro-batches, and how many of these are done; false, on all ranks alike, stops it.
  using TakeScores =
      std::function<bool(std::span<const std::int32_t> labels, std::span<const float> scores, std::uint64_t done)>;
  // first: micro-batch to begin with.
  void predict(std::uint64_t first, const TakeScores& take);
  std::uint64_t micro_batches() const { return data_.micro_batches(); }

  // Of this rank's micro-batches until now, for who watches.
  double loss_so_far() const { return labels_so_far_ ? sum_so_far_ / static_cast<double>(labels_so_far_) : 0; }

  const Executor& executor() const { return *executor_; }
  std::uint64_t rounds() const;
  // Of a classifier, in the order of its scores; else none.
  std::span<const std::string> class_names() const;
  // That the weights took to read, on this rank.
  double load_seconds() const { return load_seconds_; }

 private:
  const Job& job_;
  comm::World& world_;
  std::unique_ptr<Executor> executor_;
  std::optional<IndexMemory> index_memory_;  // of a plan of its own
  DisjointSequences data_;
  std::optional<ScoreCollector> scores_;  // of a classifier
  double load_seconds_ = 0;
  double sum_so_far_ = 0;
  std::uint64_t labels_so_far_ = 0;
};

}  // namespace strata::runtime

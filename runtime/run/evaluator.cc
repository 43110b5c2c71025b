#include "runtime/run/evaluator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/agreement.h"
#include "comm/exchange_values.h"
#include "device/numeric/exact_sum.h"
#include "device/ops/losses/losses.h"
#include "models/files/config.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/open_data.h"
#include "runtime/objective/objective.h"
#include "runtime/run/metrics/row_gather.h"
#include "runtime/run/tokenizer_match.h"

namespace strata::runtime {
namespace {

using comm::agree;
using comm::AgreedError;

// The sequences that an evaluation covers, the same on every rank.
DisjointSequences evaluated(std::unique_ptr<Sequences> sequences, const Recipe& recipe) {
  DisjointSequences out(std::move(sequences), recipe.data.seq_len, recipe.training.micro_batch_size,
                        max_validation_sequences(recipe));
  if (out.labels() == 0)
    throw AgreedError(Exit::usage,
                      "no token or text of data.validation enters the loss: all are masked out or special tokens");
  return out;
}

DisjointSequences open_validation(const Job& job, comm::World& world, std::pmr::memory_resource* memory,
                                  std::unique_ptr<Sequences> opened) {
  const Recipe& recipe = job.recipe;
  std::unique_ptr<Sequences> data;
  std::vector<comm::FileFingerprint> fingerprints;
  agree(world, [&] {
    if (recipe.data.validation.empty())
      fail(Exit::usage, "data.validation is missing: give the token files to evaluate on (strata tokenize makes them)");
    const auto check = [&](std::span<const TokenFile> files) { require_types_of_model(*job.model, files); };
    const auto vocabulary = static_cast<std::int64_t>(job.model->vocabulary);
    data = open_validation_data(recipe, {vocabulary, check, fingerprints, memory, labelling_of(job), job.packing()},
                                std::move(opened));
  });
  comm::require_same(fingerprints, world);
  return evaluated(std::move(data), recipe);
}

// The sum over all ranks, with the same bits on each.
device::ExactSum sum_over_ranks(device::ExactSum mine, comm::World& world) {
  mine.normalize();
  device::ExactSum total{};
  for (const device::ExactSum& theirs : comm::exchange_value(world, mine)) total.merge(theirs);
  return total;
}

std::span<std::byte> bytes_of(const Executor& executor, int buffer, std::size_t bytes) {
  if (bytes == 0) return {};
  auto* const begin = executor.storage().view(buffer, device::DType::fp32).data;
  return {reinterpret_cast<std::byte*>(begin), bytes};
}

models::Classes classes_of(const Job& job) {
  return models::read_classes(job.config(), job.model->objective);
}

// The layout that the plan was made with.
ScoreMemory score_memory(const Job& job, const models::Classes& classes) {
  const ScoreMemory layout(classes, job.data.scored_rows, job.plan.ranks(), job.model->loss_rows());
  STRATA_CHECK_EQ(layout.chunk_bytes, job.plan.chunks.bytes);
  return layout;
}

RowExchange exchange_of(Executor& executor) {
  return {executor.own_chunk(), [&executor] { return executor.gather_chunks(); }};
}

std::optional<ScoreCollector> scores_of(const Job& job, Executor& executor, int rank) {
  if (job.model->loss_unit().classes() == 0) return std::nullopt;
  models::Classes classes = classes_of(job);
  if (classes.target == device::ClassTarget::none) return std::nullopt;
  const ScoreMemory layout = score_memory(job, classes);
  return ScoreCollector(std::move(classes), job.model->objective == models::Objective::token_classification, layout,
                        bytes_of(executor, job.plan.score_buffer, layout.bytes), exchange_of(executor), rank,
                        job.plan.ranks());
}

}  // namespace

std::unique_ptr<WeightSource> weights_to_evaluate(const Job& job, comm::World& world, int threads, const Note& note) {
  const Recipe::Checkpoint& recipe = job.recipe.checkpoint;
  std::string path;
  // Rank 0's choice stays open until all ranks have it, because a run may be writing checkpoints there.
  std::optional<ModelFolder> named;
  std::optional<Checkpoint> newest;
  agree(world, [&] {
    if (world.rank() != 0 || recipe.resume == "none") return;
    const auto is_model = [](const std::filesystem::path& folder) {  // a Hugging Face directory is evaluated, too
      return type_at(folder / "config.json") != std::filesystem::file_type::not_found;
    };
    if (recipe.resume != "auto" && !is_model(recipe.resume))
      (void)checkpoints_to_resume(recipe);  // refuses what train would refuse
    if (recipe.resume != "auto")
      path = named.emplace(ModelFolder::newest_undamaged(recipe.resume, threads, note)).path().string();
    else if (recipe.dir && type_at(*recipe.dir) == std::filesystem::file_type::directory)
      if (auto found = newest_undamaged(*recipe.dir, threads, note))
        path = newest.emplace(std::move(*found)).path().string();
    if (!path.empty()) note("weights of " + path);
    if (path.empty() && recipe.dir)
      fail(Exit::usage,
           "checkpoint.dir {} holds no complete checkpoint to evaluate; checkpoint.resume = \"none\" evaluates the "
           "weights that training would start from",
           recipe.dir->string());
    if (path.empty() && job.recipe.model.init == Init::random)
      note(fmt::format("random, untrained weights from training.seed = {}", job.recipe.training.seed));
  });
  path = world.exchange(path)[0];
  if (path.empty()) return first_weights(job, world, threads, note);
  std::unique_ptr<WeightSource> weights;
  agree(world, [&] { weights = ModelFolder(path).weights(*job.model); });
  return weights;
}

Evaluator::Evaluator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
                     std::shared_ptr<const device::AlgorithmTable> algorithms, const Advance& advance,
                     std::unique_ptr<Sequences> opened)
    : job_(job),
      world_(world),
      executor_(std::make_unique<Executor>(job.plan, *job.model, world, device::Optimizer{}, threads,
                                           job.recipe.io_options())),
      index_memory_(std::in_place, job.plan, *executor_),
      data_(open_validation(job, world, index_memory_->resource(), std::move(opened))),
      scores_(scores_of(job, *executor_, world.rank())) {
  STRATA_CHECK(job.plan.forward_only);
  executor_->use_algorithms(std::move(algorithms));
  const SteadyClock::time_point start = SteadyClock::now();
  load_same_weights(*executor_, *job.model, job.plan, weights, threads, world, advance);
  load_seconds_ = seconds_since(start);
}

Evaluator::Evaluator(const Job& job, comm::World& world, Executor& training, std::unique_ptr<Sequences> validation)
    : job_(job),
      world_(world),
      executor_(std::make_unique<Executor>(job.plan, *job.model, training)),
      data_(evaluated(std::move(validation), job.recipe)),
      scores_(scores_of(job, *executor_, world.rank())) {
  STRATA_CHECK(job.plan.forward_only);
}

std::uint64_t Evaluator::rounds() const {
  const auto ranks = static_cast<std::uint64_t>(job_.plan.mesh().data());
  return (data_.micro_batches() + ranks - 1) / ranks;
}

std::span<const std::string> Evaluator::class_names() const {
  return scores_ ? std::span(scores_->classes().names) : std::span<const std::string>();
}

std::optional<Evaluation> Evaluator::run(const AfterRound& after_round) {
  const SteadyClock::time_point start = SteadyClock::now();
  const Mesh& mesh = job_.plan.mesh();
  const Coordinates own = mesh.at(world_.rank());
  // Only one of the ranks that take the same micro-batches adds its scores. The last stage's ranks have the highest
  // numbers, so rows are gathered in the order of micro-batches.
  const bool has_head = own.stage + 1 == mesh.stages && own.tensor == 0;
  const models::BatchRows batch = executor_->batch(0);
  executor_->refill();
  if (scores_) scores_->clear();
  sum_so_far_ = 0;
  labels_so_far_ = 0;
  device::ExactSum mine{};
  for (std::uint64_t round = 0; round < rounds(); ++round) {
    // After its last micro-batch a rank still takes part in the gathers, with labels that do not count.
    data_.fill(mesh.micro_batch(0, round, own), batch);
    (void)executor_->step({}, false);
    const device::ExactSum of_round = executor_->loss_sum();
    if (scores_ && has_head)
      scores_->add_round(executor_->scores(), job_.model->loss_unit().score_stride(),
                         batch.labels.first(job_.model->loss_rows()), batch.class_sets, batch.documents,
                         static_cast<std::size_t>(job_.recipe.data.seq_len));
    else if (scores_)
      scores_->add_round({}, 0, {}, {}, {}, 0);
    mine.merge(of_round);
    sum_so_far_ += of_round.round();
    labels_so_far_ += static_cast<std::uint64_t>(std::count_if(
        batch.labels.begin(), batch.labels.end(), [](std::int32_t label) { return label != device::kIgnoredLabel; }));
    if (after_round(round + 1, rounds())) continue;
    executor_->synchronize();
    return std::nullopt;
  }
  executor_->synchronize();
  const double loss = sum_over_ranks(mine, world_).round() / static_cast<double>(data_.labels());
  const double took = seconds_since(start);
  if (!std::isfinite(loss))
    throw AgreedError(Exit::failed,
                      "the loss on data.validation is not finite: try training.precision = \"fp32\", and look at the "
                      "weights with strata inspect");
  return Evaluation{loss,
                    std::exp(loss),
                    data_.labels(),
                    data_.sequences(),
                    static_cast<double>(data_.labels()) / took,
                    scores_ ? scores_->report(world_) : ClassReport{}};
}

std::span<RowLocation> Evaluator::places() {
  const ScoreMemory layout = score_memory(job_, classes_of(job_));
  const auto bytes = bytes_of(*executor_, job_.plan.score_buffer, layout.bytes);
  return {reinterpret_cast<RowLocation*>(bytes.data()), layout.rows};
}

void Evaluator::predict(std::uint64_t first, const TakeScores& take) {
  const Mesh& mesh = job_.plan.mesh();
  const auto at_once = static_cast<std::uint64_t>(mesh.data());
  const models::BatchRows batch = executor_->batch(0);
  const models::Classes classes = classes_of(job_);
  const ScoreMemory layout = score_memory(job_, classes);
  const std::size_t stride = job_.model->loss_unit().score_stride(), k = classes.names.size();
  RowGather gather(exchange_of(*executor_), layout.words, layout.label_words, layout.of_micro_batch, layout.rounds);
  executor_->refill();
  std::vector<std::int32_t> labels;
  std::vector<float> scores;
  for (std::uint64_t at = first; at < data_.micro_batches(); at += at_once) {
    data_.fill(mesh.micro_batch(at, 0, mesh.at(world_.rank())), batch);
    (void)executor_->step({}, false);
    for (std::size_t row = 0; row < job_.model->loss_rows(); ++row)
      if (batch.labels[row] != device::kIgnoredLabel) {
        const auto label = static_cast<std::uint32_t>(batch.labels[row]);
        gather.add({&label, 1}, executor_->scores().subspan(row * stride, k));
      }
    labels.clear();
    scores.clear();
    gather.end_round([&](std::span<const std::uint32_t> label, std::span<const float> of_row) {
      labels.push_back(static_cast<std::int32_t>(label[0]));
      scores.insert(scores.end(), of_row.begin(), of_row.end());
    });
    if (!take(labels, scores, std::min(at + at_once, data_.micro_batches()))) break;
  }
  executor_->synchronize();
}

}  // namespace strata::runtime

#pragma once
// runtime/recipe/ defines what a user can set: the values (this header), one row per key with its allowed values and
// meaning (keys/, from which docs/recipe.md is printed), and recipes read from TOML with line numbers, and written as
// text (load_recipe.h). To add a key, add a field here and a row there. All layers above use these values; this folder
// does not depend on their consequences. A recipe is not changed once it is read: the values that its files determine
// are in Workload (runtime/plan/job.h) and DataFacts (runtime/data/data_facts.h).

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/numeric/dtype.h"
#include "device/ops/step/optimizer.h"
#include "models/adapter.h"
#include "models/objective.h"
#include "offload/io_options.h"

namespace strata::runtime {

enum class Init : std::uint8_t { pretrained, random };
// How frozen matrices are stored: in the compute dtype, or in 4 bits.
enum class FrozenFormat : std::uint8_t { compute, nf4 };
enum class DataOrder : std::uint8_t { shuffle, sequential };
enum class Packing : std::uint8_t { automatic, stream, documents };
enum class LongDocuments : std::uint8_t { cut, drop, refuse };
enum class Reduce : std::uint8_t { ordered, fast };
enum class Decay : std::uint8_t { constant, linear, cosine, wsd };
enum class AdapterKind : std::uint8_t { none, lora };
enum class Tier : std::uint8_t { device, host, nvme };
enum class AccumulationOrder : std::uint8_t { automatic, horizontal, vertical };
enum class OptimizerName : std::uint8_t { adamw, adamw8bit, lion, sgd };
enum class Schedule : std::uint8_t { one_forward_one_backward, interleaved, all_forward_all_backward };
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

// The blocks that repeat their forward pass in backward: none, each block separately, all in groups of sqrt(L) (rounded
// up), or those in `blocks`.
struct Recompute {
  enum class Kind : std::uint8_t { none, block, sqrt, list };
  Kind kind = Kind::none;
  std::vector<std::int64_t> blocks;
};
// The name of a kind in recipes: "none", "block" or "sqrt"; "list" for a list of blocks.
std::string_view name_of(Recompute::Kind kind);

// zero.*_group = "all", and "node".
inline constexpr std::int64_t kAllRanks = 0, kRanksOfANode = -1;

// training.micro_batch_size = "auto", and its maximum.
inline constexpr std::int64_t kAutomaticBatch = 0, kMaxSequences = 1 << 20;

// training.mlm_probability if a recipe does not give it.
inline constexpr double kMaskedShare = 0.15;

// Steps [first, last], counted from 1.
struct StepRange {
  std::int64_t first, last;
};
// Steps as a recipe writes them: 3, "3-5", or a list of these.
std::string steps_text(std::span<const StepRange> steps);

// The maximum weight of a source, which keeps the sum over all sources finite.
inline constexpr double kMaxSourceWeight = 1e9;

// Token files, and how often sequences come from them relative to other sources.
struct DataSource {
  std::vector<std::string> files;  // paths or globs
  double weight = 1;
};
// The weights of all sources, in order: "[0.7, 0.3]".
std::string weights_text(std::span<const DataSource> sources);

// A recipe (docs/recipe.md) as the user wrote it: one member per key, with its default. Sizes are in bytes. Paths are
// resolved from the recipe's folder (from the current one if `--set` gave them); data.* may be globs.
struct Recipe {
  struct Model {
    std::optional<std::filesystem::path> path;  // a Hugging Face directory
    std::optional<std::string> preset;          // or one of models::preset_names(); exactly one of the two is set
    Init init = Init::random;                   // `pretrained` if path is set and the recipe does not say otherwise
    bool new_head = false;                      // take the classes from the data, and initialise their layer
    FrozenFormat frozen_format = FrozenFormat::compute;
    bool double_quant = true;                   // nf4: 8-bit scales
    std::map<std::string, std::string> config;  // key of config.json (dots for nested ones) -> JSON text

    // The format of frozen matrices; nullopt: the compute dtype.
    std::optional<device::StorageFormat> quantised() const;
  } model;
  struct Data {
    std::vector<DataSource> train;
    std::vector<std::string> validation;
    std::int64_t seq_len = 1024;
    DataOrder order = DataOrder::shuffle;
    Packing packing = Packing::automatic;
    LongDocuments long_documents = LongDocuments::cut;
    bool any_tokenizer = false;
  } data;
  struct Training {
    std::optional<models::Objective> objective;  // the model configuration's if not set
    std::optional<double> mlm_probability;       // for masked_lm; kMaskedShare if not set
    std::vector<double> class_weights;           // for a classifier, in the order of classes; empty: 1 each
    std::vector<std::string> freeze;             // tensors that are not trained: globs of names
    std::optional<std::int64_t> max_steps;
    std::int64_t micro_batch_size = 1;  // kAutomaticBatch: see resolve_micro_batch() (job/search/micro_batch.h)
    std::optional<std::int64_t> gradient_accumulation_steps, global_batch_size;  // at most one is set
    device::DType precision = device::DType::bf16;
    std::uint64_t seed = 0;
    double max_grad_norm = 1.0;
    Reduce reduce = Reduce::ordered;
    std::int64_t reduce_group = 1;
    Recompute recompute;
  } training;
  // The adapter that is trained while the model is frozen.
  struct AdapterKeys {
    AdapterKind kind = AdapterKind::none;
    models::Adapter lora;
    std::optional<std::filesystem::path> path;  // peft's folder, from which keys that the recipe lacks are taken
    std::vector<std::string> given;             // the names of the other keys that the recipe has

    // Null if there is no adapter.
    std::shared_ptr<const models::Adapter> shared() const {
      return kind == AdapterKind::none ? nullptr : std::make_shared<const models::Adapter>(lora);
    }
  } adapter;
  struct Optimizer {
    OptimizerName name = OptimizerName::adamw;
    std::optional<device::StorageFormat> moments;  // fp32, or the format that the name implies
    double learning_rate = 3e-4;
    std::array<double, 2> betas = {0.9, 0.95};  // lion: 0.9, 0.99 unless given
    double eps = 1e-8, momentum = 0.9, weight_decay = 0.1;

    device::Algorithm algorithm() const;
    device::StorageFormat moment_format() const;
  } optimizer;
  struct Scheduler {
    Decay name = Decay::cosine;
    std::int64_t warmup_steps = 0;
    double min_lr_ratio = 0.1;
  } scheduler;
  // How the model is split over ranks.
  struct Parallel {
    int tensor = 1;                             // ranks that share each layer
    std::optional<std::int64_t> tensor_shards;  // virtual shards; the checkpoint's, or `tensor`, if not set
    bool sequence = false;
    int stages = 1;
    Schedule schedule = Schedule::one_forward_one_backward;
    std::int64_t chunks = 1;          // pieces of the model per stage
    std::vector<std::int64_t> split;  // blocks per stage, or per chunk; empty: balanced

    // The number of virtual shards, unless the run resumes from a checkpoint with another number.
    std::size_t shards() const { return static_cast<std::size_t>(tensor_shards.value_or(tensor)); }
    // The ranks that hold the model once; a run has whole replicas.
    int replica() const { return tensor * stages; }
  } parallel;
  struct Zero {
    int stage = 0;
    Tier parameters = Tier::device, gradients = Tier::device, optimizer = Tier::device, activations = Tier::device;
    // The number of neighbouring ranks that together hold one kind of sharded state. kAllRanks: the same as the next
    // kind's.
    std::int64_t parameters_group = kAllRanks, gradients_group = kAllRanks, optimizer_group = kAllRanks;
  } zero;
  struct Memory {
    std::optional<std::uint64_t> device, host;  // capacity per rank; what is available if not set
    std::vector<std::filesystem::path> nvme;
    std::int64_t prefetch = 2;
    std::optional<std::uint64_t> tile;  // units larger than this are tiled; if not set, as few as necessary
    AccumulationOrder order = AccumulationOrder::automatic;
    bool verify = false;
    // How the nvme tier is accessed; if not set, a probe finds the best.
    std::optional<offload::Engine> io_engine;
    std::optional<bool> io_direct, io_registered;
  } memory;
  struct Device {
    DeviceKind kind = DeviceKind::automatic;
    std::optional<std::int64_t> threads;  // cores / ranks on the node if not set
  } device;
  struct Comm {
    comm::Backend backend = comm::Backend::automatic;
    comm::Transport transport = comm::Transport::automatic;
  } comm;
  struct Fp16 {
    double initial_scale = 65536;
    std::int64_t growth_interval = 2000;
  } fp16;
  struct Checkpoint {
    std::optional<std::filesystem::path> dir;
    std::int64_t every = 0, keep = 2, stop_after = 0;
    std::string resume = "auto";  // or "none", or a checkpoint's path
    bool keep_best = false;       // the best by evaluation.metric
  } checkpoint;
  // Evaluations on data.validation during training.
  struct Evaluation {
    std::int64_t every = 0;  // steps; 0: never
    bool at_start = false;
    std::optional<std::int64_t> max_sequences;  // all if not set
    std::string metric = "eval_loss";
    std::optional<bool> greater_is_better;  // the metric's own if not set
    std::int64_t patience = 0;              // evaluations without a better one; 0: any number
    std::optional<std::filesystem::path> prompts;

    bool asked() const { return every > 0 || at_start; }
  } evaluation;
  // Times are in seconds; 0: never.
  struct Control {
    std::string listen = "auto";  // or "unix:PATH", "HOST:PORT", "off"
    std::optional<std::filesystem::path> tls_cert, tls_key, tls_client_ca, token_file;
    std::string interface;        // for the streams between nodes; empty: any
    std::string metrics = "off";  // or "HOST:PORT"
    bool metrics_public = false;
    double timeout = 30, warn_after = 60, stuck_after = 600;
  } control;
  struct Report {
    // `dir` holds the reports that are not named, under their usual names (load_recipe fills them in).
    std::optional<std::filesystem::path> dir, jsonl, csv, tensorboard, summary, trace, machine;
    std::vector<StepRange> trace_steps;  // ascending and disjoint; empty: the last step
    std::int64_t every = 1;              // steps between lines shown
  } report;

  // The number of a run's ranks that take different micro-batches, with whole replicas. Throws Error{usage} if there
  // are none.
  int data_ranks(int world_size) const;
  // Throws Error{usage} unless all of the ranks are in a replica; it names a number that zero.*_group allows too.
  void require_whole_replicas(int world_size) const;
  // Micro-batches per rank and step. Throws Error{usage} if training.global_batch_size does not divide evenly over
  // the data ranks of a run of world_size ranks with training.micro_batch_size sequences, which must no longer be auto.
  int accumulation_steps(int world_size) const;
  // The memory.* keys for the nvme tier's files and requests.
  offload::IoOptions io_options() const;
};

// Checks what only `train` needs: training.max_steps, data.train if it is above 0, and require_evaluable(). Throws
// Error{usage}.
void require_trainable(const Recipe& recipe);
// Checks that keys which request evaluations while training, or count on them, have what they need. `plan` calls it
// too; `eval` ignores these keys. Throws Error{usage}.
void require_evaluable(const Recipe& recipe);

// The values of keys that a recipe does not give. A default that depends on another key (model.init on model.path,
// optimizer.betas on optimizer.name) uses that key's value in `recipe`.
Recipe defaults_for(const Recipe& recipe);

}  // namespace strata::runtime

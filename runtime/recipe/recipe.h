#pragma once
// runtime/recipe/ is what a user asks for: the values (here), one row per key with what is allowed and what it means
// (keys/, the table that docs/recipe.md prints), and TOML with line numbers (load_recipe.h). To add a key: a field
// here, a row there. Everything below the recipe sees these values; nothing in this room knows what they lead to. What
// the files that a recipe names came to is in runtime/data/data_facts.h.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
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
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

// Which blocks run their forward again in backward: none, each alone, all in groups of sqrt(L), rounded up, or
// `blocks`.
struct Recompute {
  enum class Kind : std::uint8_t { none, block, sqrt, list };
  Kind kind = Kind::none;
  std::vector<std::int64_t> blocks;
};

// zero.*_group = "all", and "node".
inline constexpr std::int64_t kAllRanks = 0, kRanksOfANode = -1;

// training.micro_batch_size = "auto", and the most that it may be.
inline constexpr std::int64_t kAutomaticBatch = 0, kMostSequences = 1 << 20;

// training.mlm_probability of a recipe that does not give it.
inline constexpr double kMaskedShare = 0.15;

// Steps [first, last], from 1.
struct StepRange {
  std::int64_t first, last;
};
// As a recipe has them: 3, "3-5", or a list of these.
std::string steps_text(std::span<const StepRange> steps);

// Token files, and how often sequences come from them beside other sources.
struct DataSource {
  std::vector<std::string> files;  // paths or globs
  double weight = 1;
};
// Of all sources, in order: "[0.7, 0.3]".
std::string weights_text(std::span<const DataSource> sources);

// What a user asks for (docs/recipe.md): one member a key, with its default. Sizes are bytes, paths are resolved
// against the recipe's folder (or the current one if `--set` gave them), data.* may be globs.
struct Recipe {
  struct Model {
    std::optional<std::filesystem::path> path;  // a Hugging Face directory
    std::optional<std::string> preset;          // or a name of models/files/presets.h; exactly one of the two is set
    Init init = Init::random;                   // `pretrained` unless said otherwise if path is set
    bool new_head = false;                      // classes are the data's, and the layer of their scores is drawn
    FrozenFormat frozen_format = FrozenFormat::compute;
    bool double_quant = true;                   // nf4: scales in 8 bits
    std::map<std::string, std::string> config;  // key of config.json (dots for nested ones) -> JSON text

    // Of frozen matrices; nullopt: the compute dtype.
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
    std::optional<models::Objective> objective;  // as the model's configuration has it where not set
    std::optional<double> mlm_probability;       // of masked_lm; kMaskedShare if not set
    std::vector<double> class_weights;           // of a classifier's classes, in order; empty: 1 each
    std::vector<std::string> freeze;             // tensors that are not trained: globs of names
    std::optional<std::int64_t> max_steps;
    std::int64_t micro_batch_size = 1;  // kAutomaticBatch until settle_micro_batch() (runtime/job/micro_batch.h)
    std::optional<std::int64_t> gradient_accumulation_steps, global_batch_size;  // at most one is set
    device::DType precision = device::DType::bf16;
    std::uint64_t seed = 0;
    double max_grad_norm = 1.0;
    Reduce reduce = Reduce::ordered;
    std::int64_t reduce_group = 1;
    Recompute recompute;
  } training;
  // What is trained beside the model, which is then frozen.
  struct AdapterKeys {
    AdapterKind kind = AdapterKind::none;
    models::Adapter lora;
    std::optional<std::filesystem::path> path;  // peft's folder, which says what the others do not
    std::vector<std::string> given;             // of these keys, those that the recipe has
    bool of_checkpoint = false;  // they are not the recipe's own: those of the checkpoint that model.path names

    // Null if there is none.
    std::shared_ptr<const models::Adapter> shared() const {
      return kind == AdapterKind::none ? nullptr : std::make_shared<const models::Adapter>(lora);
    }
  } adapter;
  // Keys that were given and have no effect on this run, a sentence each.
  std::vector<std::string> notes;
  struct Optimizer {
    OptimizerName name = OptimizerName::adamw;
    std::optional<device::StorageFormat> moments;  // fp32, or what the name says
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
  struct Zero {
    int stage = 0;
    Tier parameters = Tier::device, gradients = Tier::device, optimizer = Tier::device, activations = Tier::device;
    // Neighbouring ranks that hold a kind of sharded state together; kAllRanks: as many as the next kind's.
    std::int64_t parameters_group = kAllRanks, gradients_group = kAllRanks, optimizer_group = kAllRanks;
  } zero;
  struct Memory {
    std::optional<std::uint64_t> device, host;  // capacity per rank; what there is if not set
    std::vector<std::filesystem::path> nvme;
    std::int64_t prefetch = 2;
    std::optional<std::uint64_t> tile;  // units larger than this come in tiles; those that have to if not set
    AccumulationOrder order = AccumulationOrder::automatic;
    bool verify = false;
    // Of the nvme tier; what a probe finds best if not set.
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
    bool keep_best = false;       // by evaluation.metric
  } checkpoint;
  // On data.validation, while training.
  struct Evaluation {
    std::int64_t every = 0;  // steps; 0: never
    bool at_start = false;
    std::optional<std::int64_t> max_sequences;  // all where not set
    std::string metric = "eval_loss";
    std::optional<bool> greater_is_better;  // as the metric has it where not set
    std::int64_t patience = 0;              // evaluations without a better one; 0: any number
    std::optional<std::filesystem::path> prompts;

    bool asked() const { return every > 0 || at_start; }
  } evaluation;
  // Seconds; 0: never.
  struct Control {
    std::string listen = "auto";  // or "unix:PATH", "HOST:PORT", "off"
    std::optional<std::filesystem::path> tls_cert, tls_key, tls_client_ca, token_file;
    std::string interface;        // of the streams between nodes; empty: any
    std::string metrics = "off";  // or "HOST:PORT"
    bool metrics_public = false;
    double timeout = 30, warn_after = 60, stuck_after = 600;
  } control;
  struct Report {
    // dir: where those that are not named lie, under their usual names (load_recipe fills them in).
    std::optional<std::filesystem::path> dir, jsonl, csv, tensorboard, summary, trace, machine;
    std::vector<StepRange> trace_steps;  // rising, apart; empty: the last one
    std::int64_t every = 1;              // steps between lines shown
  } report;

  // Micro-batches per rank and step. Throws Error{usage} if training.global_batch_size does not divide over
  // world_size ranks of training.micro_batch_size sequences, which are settled.
  int accumulation_steps(int world_size) const;
  // What memory.* says of the nvme tier's files and requests.
  offload::IoOptions io_options() const;
};

// What only `train` needs: training.max_steps, and data.train where it is above 0. Throws Error{usage}.
void require_trainable(const Recipe& recipe);

}  // namespace strata::runtime

#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/adapter.h"
#include "models/model.h"
#include "runtime/plan/layout/mesh.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Throws Error{usage} if `ranks` ranks cannot share the recipe's model as parallel.* says, and for keys that
// parallel.tensor_shards above 1 does not support in this version. `shards`: Workload::shards().
void require_mesh(const Recipe& recipe, std::size_t shards, int ranks);

// Throws Error{usage} for a pipeline schedule that the recipe's steps do not allow, and for settings that exclude
// pipeline stages.
void require_stages(const Recipe& recipe, int ranks);

// True if the pipeline's schedule accepts this many micro-batches per rank and step: with several chunks, a multiple of
// the stages.
bool takes_micro_batches(const Recipe::Parallel& parallel, std::int64_t micro_batches);

// The number of micro-batches per rank and step is a multiple of this: whole runs of training.reduce_group and, in the
// interleaved schedule, a multiple of the number of stages.
int multiple_of_micro_batches(const Recipe& recipe, int ranks);

// The number of sequences in a micro-batch is a multiple of this if parallel.sequence divides its rows.
std::int64_t multiple_of_sequences(const Recipe& recipe);

// True if the number and size of the recipe's micro-batches are such multiples, and divide training.global_batch_size
// if the recipe has it.
bool takes_micro_batches(const Recipe& recipe, int ranks);

// Throws Error{usage} if runs of training.reduce_group micro-batches do not divide a step.
void require_whole_runs(const Recipe& recipe, int ranks);
// A note if gradients cross nodes and micro-batches could be summed within nodes before, but the length of a run is not
// the number of data ranks per node.
std::optional<std::string> note_of_runs(const StepPlan& plan);

// True if parallel.sequence can divide the rows of a model of this width at all.
bool is_divisible_width(std::size_t width);

// Throws Error{usage} if the ranks that share each layer cannot divide the rows of a micro-batch (parallel.sequence).
void require_divisible_rows(const Recipe& recipe, const models::Model& model);

// A sentence if ranks that share each layer are on several nodes; otherwise nothing. `nodes`: the node of each rank, as
// in comm::World; empty: all are on one.
std::optional<std::string> note_of_layers_over_nodes(const Mesh& mesh, const std::vector<int>& nodes);
// Says how many virtual shards there are, and which values of parallel.tensor keep the bits.
std::string shards_text(std::size_t shards);

// Throws Error{usage} if the adapter does not fit the model: target_modules, exclude_modules, modules_to_save,
// rank_pattern or alpha_pattern names something that no module is called (the nearest names are listed) or that is not
// a linear layer; the model lacks a layer; a tied table would be trained under one of its two names; every rank is
// above its layer's width; or nothing is left to train. `folder`: the adapter was read from peft's files or a
// checkpoint, which may also list names of other families. `base`: the model's folder, if it has one.
void require_adaptable(const models::Model& model, const models::Adapter& adapter,
                       const std::optional<std::filesystem::path>& folder,
                       const std::optional<std::filesystem::path>& base);

// A note if a rank of the adapter is above the width of its layer, which is allowed, as in peft, but gains nothing.
std::optional<std::string> note_of_high_ranks(const models::Model& model);

// Throws Error{usage} if a pattern of training.freeze matches no tensor of the model (the nearest names are listed), or
// if nothing is left to train.
void require_freezable(const models::Model& model, std::span<const std::string> patterns);

// Throws Error{usage} if model.frozen_format is set and the model has no tensor that it applies to.
void require_quantised(const models::Model& model);

// Throws Error{usage} if a model whose layers are cut into virtual shards has quantised layers that are cut within the
// 64 elements that share a scale.
void require_whole_scales(const models::Model& model, const models::ShardRange& shards);

// A plan lists every call of a unit in a step. This many take a few seconds to plan; in vertical order a plan holds all
// of them at the same time, so fewer are allowed.
inline constexpr std::int64_t kMaxCalls = 1 << 16, kMaxVerticalCalls = 1 << 13;

// The calls of a rank's units in a step of this many micro-batches through a model with this many units. The rank has
// the largest stage of parallel.split or, if stages are balanced, about its share.
std::int64_t calls_of(const Recipe& recipe, std::size_t units, std::int64_t micro_batches);
bool plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches);
// Throws Error{usage} for a recipe that needs more calls, on one of `ranks` ranks or on all of them together, than a
// plan may have.
void require_plannable(const Recipe& recipe, std::size_t units, std::int64_t micro_batches, int ranks);

}  // namespace strata::runtime

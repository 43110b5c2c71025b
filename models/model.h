#pragma once
// models/ holds the mathematics of models: layers with forward and backward written out, and the families made of them.
// It computes the shards of a layer that it is given, and does not depend on communicators, stages, tiers or plans. A
// Unit (this header) is gathered as a whole: an embedding, a block, a head. It reports its inputs and outputs, its
// cost, and the tensors that it saves and shares; the planner asks it, and does not distinguish kinds of units. Open
// families/gpt2.cc next: a family reads from top to bottom like its paper, made of layers/ and device/ops.
// families/families.h lists them all; files/ reads and writes config.json and safetensors (files/config.h first).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/numeric/storage_format.h"
#include "device/ops/elementwise.h"
#include "device/ops/products/product.h"
#include "device/step_scalars.h"
#include "device/view.h"
#include "models/adapter.h"
#include "models/batch.h"
#include "models/flat_range.h"
#include "models/layers/heads/table_tiles.h"
#include "models/objective.h"
#include "models/parameter.h"

namespace strata::models {

// A unit's keys and values of positions [0, first), and the scales of its DoRA adapters, which the call with first = 0
// computes and the following calls use. A call appends its rows' keys and values. A call with one row uses only that
// row of x, y and the workspace.
struct KeyValueCache {
  device::View values;
  std::size_t first = 0, rows = 0;
};

// The arguments of every call of a unit. `parameters`: of the part that the call runs, or of the complete unit.
// `shared`: the tensor that the unit shares with another (Unit::shared), or the tile of it that the call works on;
// empty if there is none. Its gradient goes to `shared_gradients`: all elements of the shared range, with zeros after
// the tensor.
struct Context {
  Batch batch;
  std::uint64_t micro_batch;  // g * W + rank; plus scalars->first_micro_batch, it is the global index
  const device::StepScalars* scalars;
  const std::byte* constants;  // written by Model::fill_constants
  ParameterRange parameters, shared;
  device::View workspace;
  KeyValueCache cache = {};  // used if RunShape::cache is above 0
  GradientRange shared_gradients = {};
  const float* class_weights = nullptr;  // null: 1 each
  device::View scores = {};              // for a classifier's scores (LossUnit::classes); empty: not wanted
  // For a unit with seams (Unit::seams): the stretch to run; where it leaves its partial sums or its piece, in fp32;
  // and the total of the values that the previous stretch left on all ranks (sums are in the compute dtype).
  std::size_t stretch = 0;
  device::View partial = {};
  device::ConstView total = {};
  bool overlaps_exchange = false;  // run the work that the stretch left for the exchange, not the stretch

  bool one_row() const { return cache.rows == 1; }
};

// Bytes that a unit's calls need for one micro-batch. `saved` lives from forward to backward, `cache` as long as a
// sequence.
struct UnitBytes {
  std::size_t saved = 0, forward_workspace = 0, backward_workspace = 0, cache = 0;
};

// Elements [begin, end) of a unit's trained pool, and ranges of its other pools, that can be gathered, used and freed
// separately: a tile of a unit that does not fit as a whole. Each range may be empty. Boundaries are multiples of the
// pool's alignment, and depend only on the model's shapes and on the choice of frozen tensors.
struct Part : ElementRange {
  ElementRange frozen = {0, 0}, quantised = {0, 0};

  const ElementRange& in(PoolKind pool) const {
    return pool == PoolKind::trained ? *this : pool == PoolKind::frozen ? frozen : quantised;
  }
  std::size_t elements() const { return size() + frozen.size() + quantised.size(); }
};

// Parts [first, last) of a unit.
struct PartRange {
  std::size_t first, last;
};

// A tensor that this unit uses and an earlier unit holds, for example a decoder tied to the embedding. The unit's
// gradient of it is summed separately from the holder's, and added to that once per step.
struct SharedParameter {
  std::string name;       // its name as if it were the unit's own; some files store the tensor under both names
  std::size_t unit;       // the unit that holds it: an index into Model::units
  std::size_t parameter;  // its index among that unit's parameters
  ElementRange elements;  // in the holder's pool: the tensor, rounded up to complete blocks of the gradient norm
  bool frozen = false;
  std::vector<std::size_t> offsets = {};  // places in the holder of its virtual shards' pieces; empty: it is whole

  // The offset of its first element in the holder.
  std::size_t offset() const { return offset_in(frozen ? PoolKind::frozen : PoolKind::trained, elements.begin); }
  std::size_t offset_of(std::size_t piece) const { return offsets.empty() ? offset() : offsets[piece]; }
};
class Unit;
// Shares parameter `parameter` of units[unit], which starts at a whole block of the gradient norm.
SharedParameter share(std::string name, std::span<const std::unique_ptr<Unit>> units, std::size_t unit,
                      std::size_t parameter);

// The values that a unit's calls read and write, apart from parameters and saved activations.
struct Ports {
  bool input = true;                   // false: the unit makes y from the batch, without x and dx
  bool output_by_parts = false;        // every part writes some of y; otherwise the last one writes all of it
  bool parameters_in_backward = true;  // backward reads the parameters
  // If ranks divide the rows (RunShape::divides_rows), x, y and their gradients have only this rank's rows.
  bool own_rows = false;
};

// The cost of a call, for forecasts.
struct Work {
  double flops = 0, attention_flops = 0;  // of products; of attention (if causal, below the diagonal)
  double bytes = 0;                       // memory traffic besides the products
};
enum class Pass : std::uint8_t { forward, backward };

// A boundary within a call, where ranks add or gather the results of their virtual shards
// (models/layers/blocks/split_block.h).
struct Seam {
  // The number of elements in the sum ([tokens, hidden] and any other tensor that crosses) or, if the seam gathers, in
  // a rank's piece.
  std::size_t elements;
  std::optional<std::size_t> bias = {};  // the offset of a bias [hidden] that is added to each row of the sum
  bool gathers = false;                  // the total has all ranks' pieces, in fp32, in the order of the ranks
  // While ranks exchange, the call has work that does not need the total (Context::overlaps_exchange).
  bool overlaps_exchange = false;
  bool own_rows = false;     // the total has only this rank's rows of the sum
  bool has_products = true;  // the stretch before the seam has products; otherwise it is short
  // Above 0: the total is this many matrices [tokens, hidden] in the compute dtype. Each rank contributes its rows.
  std::size_t row_matrices = 0;
};

class LossUnit;

// The parameters and computations that are gathered together: the embedding, a transformer block, the head. A unit does
// not depend on ranks, shards or tiers; the code that plans and runs a step asks it, and does not distinguish kinds of
// units. x, y and their gradients are [tokens, hidden] in the compute dtype. Units are immutable and shared by
// micro-batches. Calls run part by part, forward from the first part and backward from the last, always over all parts
// and with the same workspace. So the arithmetic does not depend on whether the complete unit is in memory.
class Unit {
 public:
  virtual ~Unit() = default;

  const std::string& name() const { return name_; }
  std::span<const Parameter> parameters() const { return parameters_; }
  // Elements of a pool, before it is padded to equal shards; a multiple of its alignment.
  std::size_t size(PoolKind pool = PoolKind::trained) const { return sizes_[static_cast<std::size_t>(pool)]; }
  bool trains() const { return size() > 0; }
  // The elements of the trained pool that come before this rank's virtual shards and belong to shards of other ranks.
  // Adding them gives the offset that a cut tensor has on a rank with all shards.
  std::size_t before_shards() const { return before_shards_; }
  const Ports& ports() const { return ports_; }
  // The tensor of another unit that this unit uses, if any; at most one.
  const std::optional<SharedParameter>& shared() const { return shared_; }
  // The unit itself if the model ends here: its forward and backward are one call that returns a loss instead of y.
  virtual const LossUnit* as_loss() const { return nullptr; }

  virtual UnitBytes bytes() const = 0;
  // Adds every library product of one micro-batch's forward and backward, for the lower bound of a step's time.
  virtual void list_products(std::vector<device::ProductShape>& out) const = 0;
  // The cost of a pass of one micro-batch over these parts. Work that belongs to no part's parameters is divided
  // evenly.
  virtual Work work(Pass pass, const PartRange& parts) const = 0;
  // The FLOPs of a pass of one micro-batch over the complete unit, even if this rank computes only some virtual shards.
  virtual Work full_work(Pass pass) const;
  // The share that these parts have of an amount that is divided evenly.
  double share_of(double amount, const PartRange& parts) const;
  PartRange all_parts() const { return {0, parts_.size()}; }

  // If ranks share the unit's layers: the seams of a call in their order, which cut it into stretches. A forward
  // without y may have fewer. A loss counts as a backward if it computes gradients. Empty: a call is one stretch.
  virtual std::vector<Seam> seams(Pass /*pass*/, bool /*wants_output*/) const { return {}; }

  // Called before the first step, in the lane that runs the unit: does the work that libraries need once per shape.
  // Returns the name of the attention implementation, if the unit has attention.
  virtual std::string set_up(device::Lane&) const { return {}; }

  // The names and adapters of its linear layers, in the order in which they were added.
  struct LinearLayer {
    std::string name;
    LowRank low_rank;
    bool input_major;  // the weight is stored [in, out]
  };
  std::span<const LinearLayer> linear_layers() const { return linear_layers_; }
  // Sets the number of the unit's first linear layer in the complete model, which selects the random numbers of adapter
  // dropout.
  void number_linear_layers(std::uint32_t first) { first_linear_layer_ = first; }

  std::span<const Part> parts() const { return parts_; }
  // The number of parts, from the first, that a forward without y runs. The others only serve to compute y.
  virtual std::size_t saving_parts() const { return parts_.size(); }
  // The first of the parts that backward runs, from the last down to it, and whether backward reads x. If nothing below
  // the unit trains, backward may end within it; then dx is not written.
  virtual std::size_t first_backward_part() const { return 0; }
  virtual bool input_in_backward() const { return ports_.input; }

  // Computes y from x. An empty y means recomputation: the call only writes `saved`.
  virtual void forward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::View y,
                       device::View saved) const = 0;
  // Computes dx and the gradient of every parameter of the part, rounded to the compute dtype. Writes everything except
  // the gaps between parameters. dx may be dy. x is empty if backward does not read it.
  virtual void backward(device::Lane&, const Context&, std::size_t part, device::ConstView x, device::ConstView saved,
                        device::ConstView dy, device::View dx, const GradientRange& gradients) const = 0;

 protected:
  explicit Unit(std::string name, Ports ports = {}) : name_(std::move(name)), ports_(ports) {}
  // Call before adding parameters: freezes the parameters whose names match or, with an adapter, all parameters that
  // the adapter does not train fully.
  void freeze(std::vector<std::string> patterns, std::shared_ptr<const Adapter> adapter = {}) {
    freeze_ = std::move(patterns);
    adapter_ = std::move(adapter);
  }
  // Call before adding parameters: quantises the frozen matrices of linear layers, except in the modules of
  // RunShape::not_quantised.
  void quantise_matrices(std::shared_ptr<const std::vector<std::string>> but) {
    quantises_ = true;
    not_quantised_ = std::move(but);
  }
  // Places the parameter after the earlier ones of its pool; returns its offset.
  std::size_t add_parameter(std::string name, std::vector<std::int64_t> shape, bool decay, Init init,
                            bool fp32_moments = false);
  // Adds a tensor that is cut into virtual shards; place_shards() gives its pieces their places. Returns its index.
  std::size_t add_cut_parameter(std::string name, std::vector<std::int64_t> shape, const Slice& slice, bool decay,
                                Init init, bool fp32_moments = false);
  // Places the pieces of all tensors added by add_cut_parameter() after the whole tensors: the pieces of the first of
  // these shards, in the order in which the tensors were added, then the next shard's, and so on. Each shard begins at
  // a multiple of shard_alignment_of() its pool, and the last one ends at one. The unit must still be one part.
  void place_shards(const ShardRange& shards);
  // Adds the adapter tensors of linear layers that multiply the same input (all A, all B, all magnitudes; an output
  // layer's magnitudes before its B), and returns each layer's adapter (rank 0: none). Names are without ".weight".
  // With several virtual shards, which cut the layers' outputs or their inputs, B and magnitudes or A are cut as well,
  // and the adapters hold indices of parameters in place of offsets.
  struct LinearShape {
    std::string name;
    std::size_t out;
    bool input_major = false;
    std::size_t segments = 1;
    std::size_t sharers = 1;  // see Slice
    bool output = false;      // the model's output layer, which is a target only if it is named
  };
  std::vector<LowRank> add_low_rank(std::size_t in, std::span<const LinearShape> layers, std::size_t shards = 1,
                                    bool cuts_outputs = true);
  // Dropout of the input of linear layer `layer`'s adapter; the following layers use the following sites. These sites
  // are above the sites of the blocks' own dropout.
  device::Dropout adapter_dropout(const Context& c, std::size_t layer) const;
  // Ends a part: the parameters added since the end of the previous one.
  void end_part();
  // A table [vocabulary, width], with a part for each of its tiles (TableTiles). If it has an adapter, whose tensors
  // add_low_rank() has just placed, A and magnitudes are in the part before the table, and each tile has its rows of B.
  std::size_t add_table(std::string name, const TableTiles& tiles, std::size_t width, Init init,
                        bool fp32_moments = false, const LowRank& adapter = {});
  // Declares the tensor of another unit that this one uses; nullopt: none.
  void use(std::optional<SharedParameter> shared) { shared_ = std::move(shared); }

 private:
  std::string name_;
  Ports ports_;
  std::optional<SharedParameter> shared_;
  std::vector<Parameter> parameters_;
  std::vector<Part> parts_;
  std::vector<LinearLayer> linear_layers_;
  std::vector<std::string> freeze_;
  bool quantises_ = false;
  std::shared_ptr<const std::vector<std::string>> not_quantised_;
  std::shared_ptr<const Adapter> adapter_;
  std::uint32_t first_linear_layer_ = 0;
  std::array<std::size_t, kPools.size()> sizes_{};
  std::size_t before_shards_ = 0;

  void end_part(std::size_t trained_end);
  std::size_t place(PoolKind pool, std::size_t elements);
  PoolKind pool_for(const std::string& name, const std::vector<std::int64_t>& shape) const;
  std::size_t place_parameter(Parameter parameter, PoolKind pool);
};

// The steps of a loss whose table is gathered by tiles, in this order: the norm, the statistics of all tiles, their
// gradients, the norm's gradient.
enum class LossStep : std::uint8_t { norm, statistics, gradients, finish };

// A unit that ends in a loss. It runs in one call if the parameters and gradients of the whole unit are available. A
// unit with a large table may also offer the same arithmetic step by step and tile by tile.
class LossUnit : public Unit {
 public:
  // Adds the micro-batch's summed loss to *loss. With dx, also computes the gradients of the unit and of the tensor
  // that it shares.
  virtual void loss(device::Lane&, const Context&, device::ConstView x, device::ExactSum* loss, device::View dx,
                    device::View gradients) const = 0;
  virtual std::size_t loss_workspace() const = 0;
  // The cost of the call; `learns`: with gradients.
  virtual Work loss_work(bool learns) const = 0;
  // If RunShape::cache is above 0: computes the fp32 logits [vocabulary] of the last row of x, in the workspace of
  // loss().
  virtual void logits(device::Lane&, const Context&, device::ConstView x, device::View logits) const;
  // The bytes of its cache (UnitBytes) in such a run.
  virtual std::size_t cache_bytes() const { return 0; }
  // For a classifier: the number of scores per row that enters the loss. loss() writes them to Context::scores, in
  // fp32, with score_stride() elements between rows. 0: this is no classifier.
  virtual std::size_t classes() const { return 0; }
  virtual std::size_t score_stride() const { return 0; }
  // device::class_set_words() of a classifier.
  virtual std::size_t class_words() const { return 0; }
  // The layer of the scores: its parameters' names without ".weight" and ".bias".
  virtual std::string score_layer() const { return {}; }

  // The number of table tiles for loss_step(); 0: it is not supported. Each tile is a part: of this unit, after its
  // first part, which is the norm; or, for a shared tensor, of the unit that holds it.
  virtual std::size_t table_tiles() const { return 0; }
  // `tile` is an index among the table's tiles. The tile's parameters (the unit's or the shared ones) and gradients are
  // available; in the norm's steps, those of the norm. loss and dx: used by `finish`. Without dx there are no
  // gradients, and no `finish`. The workspace is the same in all steps.
  virtual void loss_step(device::Lane&, const Context&, LossStep step, std::size_t tile, device::ConstView x,
                         device::ExactSum* loss, device::View dx, const GradientRange& gradients) const;
  virtual std::size_t tiled_loss_workspace() const { return 0; }
  // The cost of the step; in the table's steps, with this many of the table's elements available.
  virtual Work step_work(LossStep /*step*/, std::size_t /*elements*/) const { return {}; }

  const LossUnit* as_loss() const final { return this; }
  UnitBytes bytes() const override { return {.cache = cache_bytes()}; }
  // loss_work(): forward is the cost without gradients, backward what gradients add.
  Work work(Pass pass, const PartRange& parts) const override;
  void forward(device::Lane&, const Context&, std::size_t, device::ConstView, device::View,
               device::View) const override;
  void backward(device::Lane&, const Context&, std::size_t, device::ConstView, device::ConstView, device::ConstView,
                device::View, const GradientRange&) const override;

 protected:
  using Unit::Unit;
};

// A model prepared for one RunShape: units in forward order. Only the last one ends in a loss.
class Model {
 public:
  std::string family;  // config.json's model_type
  Objective objective;
  BatchShape batch;  // the shape of a micro-batch
  std::size_t vocabulary, hidden, max_positions;
  std::size_t heads, head_dim;
  bool bidirectional = false;  // rows attend to their complete document
  std::vector<std::unique_ptr<Unit>> units;
  // quantised_as: the format that determines the values in quantised pools. quantised: the format that stores them.
  // They differ with virtual shards, which cut blocks of nf4 and store its scales in fp32.
  device::StorageFormat quantised_as = device::StorageFormat::nf4, quantised = device::StorageFormat::nf4;
  bool quantised_in_files = false;  // the model's files hold those pools' tensors quantised
  std::size_t constants_bytes = 0;
  // Suffixes of tensor names that a checkpoint may contain although they are not parameters (causal masks, rotary
  // tables).
  std::vector<std::string> ignored_suffixes;
  // Ignores all tensors of these layers: weights, biases, and a norm's under their older names.
  void ignore_layers(std::span<const std::string> layers);
  // A tensor that transformers' files hold in addition, with the values of one of the model's, and does not compute
  // with.
  struct Copy {
    std::string name, of;
  };
  std::optional<Copy> copy_in_files;
  // Names of a head's parameters that are initialised from the seed if the files of the weights contain none of them.
  std::vector<std::string> random_if_missing;
  // Class weights, stored as fp32 in the constants, starting at byte class_weights_at; empty: 1 each.
  std::vector<float> class_weights;
  std::size_t class_weights_at = 0;
  // The prefix that base-model checkpoints leave out ("transformer.", "model.").
  std::string optional_prefix;

  virtual ~Model() = default;
  virtual void fill_constants(std::byte* constants) const = 0;
  // Calls fill_constants, and writes the class weights after its bytes.
  void write_constants(std::byte* constants) const;

  const LossUnit& loss_unit() const;
  // The maximum number of rows of a micro-batch that enter the loss.
  std::size_t loss_rows() const { return batch.loss_rows > 0 ? batch.loss_rows : batch.tokens; }
  std::size_t parameters() const;  // the number of parameters
  std::size_t trained_parameters() const;
  // The first unit that trains something: backward ends in it. The number of units if none does.
  std::size_t lowest_trained() const;
  // FLOPs per token of the units' products, forward and backward, and of attention as if nothing were masked (Chowdhery
  // et al. 2022). `tokens`: of the RunShape.
  double flops_per_token(std::size_t tokens) const;
};

class Config;
// Makes the model that config.json's `model_type` names, prepared for `shape`. Throws Error{usage} if the family, or a
// config key that changes the mathematics, is not supported, or if `seq` exceeds the model's positions.
std::unique_ptr<Model> make_model(const Config& config, const RunShape& shape);

}  // namespace strata::models

#pragma once
// runtime/weights/ brings weights in: from random numbers, safetensors or a checkpoint (WeightSource, here), into the
// executor's memory as placed; weights_hash.h is the hash that two runs are compared by.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/advance.h"
#include "comm/communicator.h"
#include "comm/same_files.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"

namespace strata::runtime {

// Where the weights before step 1 come from: any consecutive elements of any parameter, in fp32. Thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Elements [begin, begin + out.size()) of parameter `parameter` of unit `unit`.
  virtual void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const = 0;
  // Says that `count` elements from `begin` will be read soon: starts what a read of them would wait for.
  virtual void prefetch(std::size_t /*unit*/, std::size_t /*parameter*/, std::size_t /*begin*/,
                        std::size_t /*count*/) const {}

  // For ranks that must read from the same files: what can be seen of them before anything is read, and what was read
  // so far, alike on ranks that read the same elements. Nothing if weights come from no file.
  virtual std::vector<comm::Seen> seen() const { return {}; }
  virtual std::vector<comm::Seen> seen_as_read() const { return {}; }
  // Names of the parameters that the files lack and that are drawn instead (Model::drawn_if_missing).
  virtual std::vector<std::string> drawn() const { return {}; }
  // How many of the model's tensors are stored as F64, and so rounded to fp32 as they are read.
  virtual std::size_t rounded() const { return 0; }
  // Layers of the files that the model lacks: heads of other objectives. They are not trained, nor written anew.
  virtual std::vector<std::string> left_out() const { return {}; }
};

// Drawn as each parameter's Init says from Philox keyed by the seed, with the parameter's place in the model and the
// element's index as counter (Box & Muller 1958): the same for every world size.
std::unique_ptr<WeightSource> random_weights(const models::Model& model, std::uint64_t seed);

// A Hugging Face directory's model.safetensors. Throws Error{corrupt} for a tensor that is missing, unexpected or of
// another shape; read() throws it, naming the tensor, for a value that is not finite. seed: of what is drawn; new_head:
// the layer of the classes' scores is.
std::unique_ptr<WeightSource> stored_weights(const models::Model& model, const std::filesystem::path& directory,
                                             std::uint64_t seed = 0, bool new_head = false);

// Elements [begin, begin + values.size()) of a unit's trained pool: into this rank's parameters, rounded to their
// dtype, and its fp32 master, as far as it holds them; or of its frozen pool, which has no master. Thread-safe for
// elements that do not overlap.
void store_weights(Executor& executor, const StepPlan& plan, std::size_t unit, bool frozen, std::size_t begin,
                   std::span<const float> values);

// Fills this rank's parameters and fp32 masters on `threads` threads.
void load_weights(Executor& executor, const StepPlan& plan, const WeightSource& source, int threads,
                  const Advance& advance = {});

// Collective: the same on all ranks, which are found to read from the same files: by what can be seen of them before,
// and if every rank reads all weights, by a hash of each tensor as it was read. Throws AgreedError naming a rank.
void load_same_weights(Executor& executor, const StepPlan& plan, const WeightSource& source, int threads,
                       comm::World& world, const Advance& advance = {});

}  // namespace strata::runtime

#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/same_files.h"
#include "models/model.h"
#include "runtime/plan/mesh.h"

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

  // Whether a matrix is quantised in the source itself, in that format; read_block: the block that begins at an element
  // of it, a multiple of device::kNf4Block, as it is stored.
  virtual bool quantised(std::size_t /*unit*/, std::size_t /*parameter*/, device::StorageFormat /*format*/) const {
    return false;
  }
  virtual void read_block(std::size_t /*unit*/, std::size_t /*parameter*/, std::size_t /*begin*/,
                          std::span<std::byte> /*block*/) const {}

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
  // The BaseHash that what is frozen has to have, and where it comes from; empty: any.
  struct Base {
    std::string hash, path;
  };
  virtual Base base() const { return {}; }
};

// Of the tensors beside which an adapter is trained, as they are read, before they are rounded: the sum over blocks of
// 256 elements, each of which is added once, of XXH3-128 of their fp32 bytes, seeded by the tensor's number in the
// model and the block's. Thread-safe.
class BaseHash {
 public:
  explicit BaseHash(const models::Model& model);
  // Elements [begin, begin + values.size()) of a tensor; begin is a multiple of 256, and so is the end unless it is the
  // tensor's.
  void add(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<const float> values);
  // With those of the other ranks. Collective.
  std::string whole(comm::World& world) const;
  std::string text() const;

 private:
  std::vector<std::vector<std::uint32_t>> numbers_;
  std::atomic<std::uint64_t> low_ = 0, high_ = 0;
};
// Throws Error{usage} if `source` says that its base has to have another hash.
void require_base(const WeightSource& source, const std::string& hash);
// By unit, and run of its quantised pool: the mean of a matrix' scales.
using ScaleOffsets = std::vector<std::vector<float>>;

// Drawn as each parameter's Init says from Philox keyed by the seed, with the parameter's place in the model and the
// element's index as counter (Box & Muller 1958): the same for every world size.
std::unique_ptr<WeightSource> random_weights(const models::Model& model, std::uint64_t seed);

// A Hugging Face directory's model.safetensors. Throws Error{corrupt} for a tensor that is missing, unexpected or of
// another shape; read() throws it, naming the tensor, for a value that is not finite. seed: of what is drawn; new_head:
// the layer of the classes' scores is.
std::unique_ptr<WeightSource> stored_weights(const models::Model& model, const std::filesystem::path& directory,
                                             std::uint64_t seed = 0, bool new_head = false);

// How weights are loaded: all, or what is frozen alone. base: gets the frozen elements of this rank's shards.
struct LoadOptions {
  bool frozen_alone = false;
  BaseHash* base = nullptr;
  Coordinates rank = {};
  const ScaleOffsets* offsets = nullptr;  // of what is quantised; null: this rank reads everything for them
};

}  // namespace strata::runtime

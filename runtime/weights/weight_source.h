#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/same_files.h"
#include "models/model.h"
#include "runtime/plan/layout/mesh.h"

namespace strata::runtime {

// The source of the weights before step 1: any consecutive elements of any parameter, in fp32. Thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Elements [begin, begin + out.size()) of parameter `parameter` of unit `unit`.
  virtual void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const = 0;
  // Announces that `count` elements from `begin` will be read soon, so that their I/O can start.
  virtual void prefetch(std::size_t /*unit*/, std::size_t /*parameter*/, std::size_t /*begin*/,
                        std::size_t /*count*/) const {}

  // True if the source itself stores a matrix quantised in this format. If so, read_block() reads the stored block that
  // begins at element `begin`, a multiple of device::kNf4Block.
  virtual bool quantised(std::size_t /*unit*/, std::size_t /*parameter*/, device::StorageFormat /*format*/) const {
    return false;
  }
  virtual void read_block(std::size_t /*unit*/, std::size_t /*parameter*/, std::size_t /*begin*/,
                          std::span<std::byte> /*block*/) const {}
  // The dtype to which bitsandbytes would unpack a matrix that the source stores quantised, as PyTorch names it; empty:
  // the source does not say.
  virtual std::string unpacked_dtype(std::size_t /*unit*/, std::size_t /*parameter*/) const { return {}; }

  // For ranks that must read the same files: fingerprints() describes the files before they are read,
  // fingerprints_as_read() the elements read so far; it is equal on ranks that read the same elements. Empty if the
  // weights do not come from files.
  virtual std::vector<comm::FileFingerprint> fingerprints() const { return {}; }
  virtual std::vector<comm::FileFingerprint> fingerprints_as_read() const { return {}; }
  // Names of parameters that the files lack and that are initialised at random (Model::random_if_missing).
  virtual std::vector<std::string> initialised() const { return {}; }
  // The number of tensors stored as F64, which are rounded to fp32 as they are read.
  virtual std::size_t rounded() const { return 0; }
  // Layers in the files that the model lacks: heads of other objectives. They are neither trained nor written.
  virtual std::vector<std::string> left_out() const { return {}; }
  // The BaseHash that the frozen weights must have, and where they come from; empty: any.
  struct Base {
    std::string hash, path;
  };
  virtual Base base() const { return {}; }
};

// Forwards all calls to another source, which it owns or which outlives it. A source that changes some of the answers
// derives from this class.
class ForwardedWeights : public WeightSource {
 public:
  explicit ForwardedWeights(const WeightSource& weights) : weights_(weights) {}
  explicit ForwardedWeights(std::unique_ptr<const WeightSource> weights)
      : owned_(std::move(weights)), weights_(*owned_) {}

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    weights_.read(unit, parameter, begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    weights_.prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    return weights_.quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    weights_.read_block(unit, parameter, begin, block);
  }
  std::string unpacked_dtype(std::size_t unit, std::size_t parameter) const override {
    return weights_.unpacked_dtype(unit, parameter);
  }
  std::vector<comm::FileFingerprint> fingerprints() const override { return weights_.fingerprints(); }
  std::vector<comm::FileFingerprint> fingerprints_as_read() const override { return weights_.fingerprints_as_read(); }
  std::vector<std::string> initialised() const override { return weights_.initialised(); }
  std::size_t rounded() const override { return weights_.rounded(); }
  std::vector<std::string> left_out() const override { return weights_.left_out(); }
  Base base() const override { return weights_.base(); }

 private:
  std::unique_ptr<const WeightSource> owned_;  // null: borrowed

 protected:
  const WeightSource& weights_;
};

// Reads elements [begin, begin + out.size()) of a matrix, one block of `format`, which is nf4 or nf4_plain, after
// another.
void read_blocks(const WeightSource& source, device::StorageFormat format, std::size_t unit, std::size_t parameter,
                 std::size_t begin, std::span<float> out);
// Reads elements [begin, begin + out.size()) of a virtual shard's piece of a parameter.
void read_piece(const WeightSource& source, std::size_t unit, std::size_t parameter, const models::Piece& piece,
                std::size_t begin, std::span<float> out);

// Hash of the tensors of an adapter's base as they are read, before rounding: the sum, over blocks of 256 elements, of
// the XXH3-128 of their fp32 bytes, seeded by the numbers of tensor and block in the model. Each block must be added
// once; their order does not matter. Thread-safe.
class BaseHash {
 public:
  explicit BaseHash(const models::Model& model);
  // Adds elements [begin, begin + values.size()) of a tensor. `begin` is a multiple of 256; so is the end, unless it is
  // the tensor's.
  void add(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<const float> values);
  // The hash of the elements that all ranks have added. Collective.
  std::string over_ranks(comm::World& world) const;
  // The hash of the elements that this rank has added.
  std::string of_rank() const;

 private:
  std::vector<std::vector<std::uint32_t>> numbers_;
  std::atomic<std::uint64_t> low_ = 0, high_ = 0;
};
// Throws Error{usage} if `source` requires a base with a hash other than `hash`.
void require_base(const WeightSource& source, const std::string& hash);
// The mean of each matrix's scales, by unit and run of its quantised pool.
using ScaleOffsets = std::vector<std::vector<float>>;

// Random weights: each parameter's Init applied to Philox, keyed by the seed, with the parameter's place in the model
// and the element's index as counter (Box & Muller 1958). Equal for every number of ranks.
std::unique_ptr<WeightSource> random_weights(const models::Model& model, std::uint64_t seed);

// The model.safetensors of a Hugging Face directory. Throws Error{corrupt} for a tensor that is missing, unexpected or
// of the wrong shape; read() throws it, naming the tensor, for a value that is not finite. `seed`: for parameters that
// are initialised at random; `new_head`: the layer of the class scores is initialised too.
std::unique_ptr<WeightSource> stored_weights(const models::Model& model, const std::filesystem::path& directory,
                                             std::uint64_t seed = 0, bool new_head = false);

// Which weights are loaded: all, or only the frozen ones. `base` receives the frozen elements of this rank's shards.
struct LoadOptions {
  bool frozen_alone = false;
  BaseHash* base = nullptr;
  Coordinates rank = {};
};

}  // namespace strata::runtime

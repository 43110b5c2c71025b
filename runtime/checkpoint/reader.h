#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "models/model.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// The advice that ends read_block()'s error about a damaged block.
inline constexpr std::string_view kNameOlder = "; name an older checkpoint if the folder has one";

// A complete checkpoint, open for reading. Its manifest and its files' headers are verified, and each kind of state
// covers every tensor exactly once. Data is verified block by block as it is read. Thread-safe; no run removes the
// checkpoint during this object's lifetime. Throws Error{corrupt} with file, place, expected and found; Error{failed}
// if a file cannot be read.
class Checkpoint {
 public:
  // The folder of one checkpoint ("DIR/step-00000100").
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  std::uint64_t bytes() const;  // the size of its files

  // "master", "moment1", ... in byte order.
  std::vector<std::string> kinds() const;
  // The extents of a tensor's state, box after box, and within a box in the order of elements; empty if the kind is not
  // stored. All boxes split the tensor's dimensions in the same way.
  std::span<const Extent> extents(std::string_view kind, std::string_view tensor) const;
  // Reads block `block` of an extent into `buffer` (kBlockBytes) and verifies it. Error{corrupt} advises an older
  // checkpoint.
  std::span<const std::byte> read_block(const Extent& extent, std::size_t block, std::span<std::byte> buffer) const;

  // Reads and verifies every block, on `threads` threads. Error{corrupt} gives no advice, because the caller adds its
  // own.
  void verify(int threads, const Advance& advance = {}) const;

  // Advises the system that this block will be read soon.
  void prefetch_block(const Extent& extent, std::size_t block) const;

  // Reads the NF4 block of a tensor that begins at element `begin`.
  void read_nf4_block(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                      std::span<std::byte> block) const;
  // Reads elements of a tensor's state as they are stored, from element `begin` of the whole tensor on. Their format
  // must not consist of blocks.
  void read_elements(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                     std::span<std::byte> out) const;
  // Reads elements [begin, begin + out.size()) of a tensor's fp32 state. prefetch() announces a later read.
  void prefetch(std::string_view kind, std::string_view tensor, std::uint64_t begin, std::uint64_t count) const;
  void read(std::string_view kind, std::string_view tensor, std::uint64_t begin, std::span<float> out) const;

 private:
  class OpenFiles;
  void add_file(const ShardEntry& promised);
  void require_coverage() const;
  // Bytes [begin, end) of an extent.
  std::vector<std::byte> read_bytes(const Extent& extent, std::uint64_t begin, std::uint64_t end) const;
  std::span<const std::byte> checked_block(const Extent& extent, std::size_t block, std::span<std::byte> buffer,
                                           std::string_view advice) const;

  std::filesystem::path path_;
  std::optional<CheckpointHold> hold_;
  Manifest manifest_;
  std::unique_ptr<OpenFiles> files_;
  std::map<std::string, std::map<std::string, std::vector<Extent>, std::less<>>, std::less<>> kinds_;  // kind, tensor
};

// The fp32 master weights of a checkpoint as a source for `model`, like stored_weights() for a directory; a head that
// the checkpoint lacks is initialised at random. Throws Error{usage} if the checkpoint is another model's. The
// checkpoint must outlive the source.
std::unique_ptr<WeightSource> checkpoint_weights(const Checkpoint& checkpoint, const models::Model& model,
                                                 std::uint64_t seed = 0, bool new_head = false);

// Throws Error{usage} naming the first tensor that only one of the two has, or whose shapes differ.
void require_same_tensors(const Checkpoint& checkpoint, const models::Model& model);

}  // namespace strata::runtime

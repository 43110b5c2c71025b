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

#include "base/advance.h"
#include "models/model.h"
#include "runtime/checkpoint/hold.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// A complete checkpoint, open for reading: its manifest and the headers of its files are verified, and every kind of
// state that it holds covers every tensor once. Data is verified block by block as it is read. Reading is thread-safe,
// and no run removes the checkpoint meanwhile. Throws Error{corrupt} with file, place, expected and found;
// Error{failed} if a file cannot be read.
class Checkpoint {
 public:
  // The folder of one checkpoint ("DIR/step-00000100").
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  std::uint64_t bytes() const;  // of its files

  // "master", "moment1", ... in byte order.
  std::vector<std::string> kinds() const;
  // Where a tensor's state lies, in the order of its elements; empty for a kind that is not there.
  std::span<const Extent> extents(std::string_view kind, std::string_view tensor) const;
  // Block `block` of an extent, read into `buffer` (kBlockBytes) and verified. Error{corrupt} says to name an older
  // checkpoint.
  std::span<const std::byte> read_block(const Extent& extent, std::size_t block, std::span<std::byte> buffer) const;

  // Reads every block that there is, on `threads` threads, and compares its checksum. Error{corrupt} says what is wrong
  // and gives no advice.
  void verify(int threads, const Advance& advance = {}) const;

  // Says that it will be read soon.
  void prefetch_block(const Extent& extent, std::size_t block) const;

  // The block of a tensor in nf4 that begins at this element.
  void read_nf4_block(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                      std::span<std::byte> block) const;
  // Elements [begin, begin + out.size()) of a tensor's fp32 state; and the same said ahead.
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

// The fp32 master weights of a checkpoint as a source for `model`, as stored_weights() has those of a directory: a head
// that the checkpoint lacks is drawn. Throws Error{usage} if it is another model's. The checkpoint outlives it.
std::unique_ptr<WeightSource> checkpoint_weights(const Checkpoint& checkpoint, const models::Model& model,
                                                 std::uint64_t seed = 0, bool new_head = false);

// Throws Error{usage} naming the first tensor that one has and the other has not, or in another shape.
void require_same_tensors(const Checkpoint& checkpoint, const models::Model& model);

}  // namespace strata::runtime

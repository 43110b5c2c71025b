#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/numeric/storage_format.h"
#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

// Checksums are of blocks of this many bytes of each extent, so that a part of it can be read and verified.
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
// The header of a shard file, padded, is a multiple of this: what follows can be written past the page cache.
inline constexpr std::size_t kShardHeaderAlignment = 4096;

// safetensors' name of a format: "F32", "BF16", "F16", and "U8" for blocks of 256 elements in 8 bits or of 16,384 in 4,
// of which there are always whole ones. format_of: of such a name, of "U8" that in 8 bits; of any other nothing.
std::string_view stored_dtype(device::StorageFormat format);
std::optional<device::StorageFormat> format_of(std::string_view dtype);

// Part of one tensor's state, as a shard file holds it: elements [begin, end) of the tensor in row-major order.
struct Extent {
  std::string kind, tensor;  // "moment1", "transformer.wte.weight"
  device::StorageFormat format = device::StorageFormat::fp32;
  std::vector<std::uint64_t> shape;  // of the whole tensor
  std::uint64_t begin = 0, end = 0;
  std::uint64_t offset = 0, bytes = 0;        // in the file
  std::vector<std::uint64_t> checksums = {};  // XXH3-64 of each block
  std::size_t file = 0;                       // which of a checkpoint's files

  std::uint64_t elements() const { return end - begin; }
  // The extent's place among the bytes of the whole tensor's state in its format.
  std::uint64_t first_byte() const { return stored_bytes(format, begin); }
  std::size_t blocks() const { return (bytes + kBlockBytes - 1) / kBlockBytes; }
};

// The header that puts `extents`, in their order, one after the other into a safetensors file: its bytes do not change
// their number with the checksums.
std::string shard_header(std::span<const Extent> extents);

// The extents of a shard file, whose header is compared with what the manifest promises. Throws Error{corrupt};
// Error{failed} if it cannot be read.
std::vector<Extent> read_shard_header(const std::filesystem::path& file, const ShardEntry& promised);

}  // namespace strata::runtime

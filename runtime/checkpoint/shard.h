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
#include "runtime/plan/layout/box.h"

namespace strata::runtime {

// Bytes per checksummed block of an extent, so that parts of it can be read and verified.
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
// A shard file's header is padded to a multiple of this, so that the data after it can be written by direct I/O.
inline constexpr std::size_t kShardHeaderAlignment = 4096;

// The safetensors dtype of a format: "F32", "BF16", "F16", or "U8" for the block formats (256 elements in 8 bits,
// 16,384 in 4 bits; always complete blocks). format_of() returns block8 for "U8", and nullopt for an unknown name.
std::string_view stored_dtype(device::StorageFormat format);
std::optional<device::StorageFormat> format_of(std::string_view dtype);

// A part of one tensor's state in a shard file: elements [begin, end) of a box of the tensor, in the box's row-major
// order. Blocks of elements are counted from the first element of the box.
struct Extent {
  std::string kind, tensor;  // "moment1", "transformer.wte.weight"
  device::StorageFormat format = device::StorageFormat::fp32;
  Box box;
  std::uint64_t begin = 0, end = 0;
  std::uint64_t offset = 0, bytes = 0;        // the extent's place in the file
  std::vector<std::uint64_t> checksums = {};  // XXH3-64 of each block
  std::size_t file = 0;                       // index among the checkpoint's files

  std::uint64_t elements() const { return end - begin; }
  BoxRange range() const { return {box, begin, end}; }
  // The extent's offset in the complete box's state, in bytes of its format.
  std::uint64_t first_byte() const { return stored_bytes(format, begin); }
  std::size_t blocks() const { return (bytes + kBlockBytes - 1) / kBlockBytes; }
};

// The safetensors header of a file that holds `extents` in this order without gaps. Its length does not depend on the
// checksums, so that it can be written last.
std::string shard_header(std::span<const Extent> extents);

// Reads the extents of a shard file and compares the header with the manifest. Throws Error{corrupt}, or Error{failed}
// if it cannot be read.
std::vector<Extent> read_shard_header(const std::filesystem::path& file, const ShardEntry& promised);

}  // namespace strata::runtime

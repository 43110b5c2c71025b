#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/mapped_file.h"
#include "device/numeric/dtype.h"

namespace strata::models {

// One tensor of a safetensors file. `bytes` points into the mapping of its Safetensors: row-major, little-endian,
// unaligned.
struct StoredTensor {
  std::string name;
  std::string dtype;                  // as in the file: "F32", "BF16", "I64", ...
  std::optional<device::DType> type;  // nullopt if Strata does not compute in this dtype
  std::vector<std::uint64_t> shape;   // [] for a scalar
  std::filesystem::path file;
  std::uint64_t file_offset = 0;  // the offset of its bytes in the file
  std::span<const std::byte> bytes;

  std::uint64_t elements() const;
  bool is_double() const { return dtype == "F64"; }
  // True if read_elements() can read it.
  bool readable() const { return type.has_value() || is_double(); }
  std::size_t element_bytes() const { return is_double() ? sizeof(double) : size_of(*type); }
};

// A mapped safetensors file, or a Hugging Face directory (model.safetensors, or shards with
// model.safetensors.index.json). Opening it validates the whole header, and throws an Error{corrupt} with file, offset,
// expected and found.
class Safetensors {
 public:
  static Safetensors open(const std::filesystem::path& file_or_directory);

  // All tensors, in byte order of their names.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // nullptr if there is none.
  const StoredTensor* find(std::string_view name) const;
  // Throws Error{corrupt} if there is no such tensor, if its shape differs, or if Strata cannot read its dtype.
  const StoredTensor& require(std::string_view name, std::span<const std::uint64_t> shape) const;
  // The `__metadata__` of all files together.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::uint64_t file_bytes() const;

 private:
  void add_file(const std::filesystem::path& file);
  void add_index(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Converts elements [begin, begin + out.size()) of a readable tensor to fp32: exactly, or from F64 rounded to nearest
// even.
void read_elements(const StoredTensor& tensor, std::uint64_t begin, std::span<float> out);
// True if two readable tensors have equal shapes and, as fp32, equal elements. Their dtypes may differ.
bool same_values(const StoredTensor& a, const StoredTensor& b);

// A tensor to be written.
struct TensorSpec {
  std::string name;
  device::DType dtype;
  std::vector<std::int64_t> shape;
  bool of_bytes = false;  // elements are bytes (U8), whatever dtype says

  std::uint64_t bytes() const;
};

// Assigns tensors to files with the names that transformers requires: model.safetensors, or
// model-00001-of-0000N.safetensors if all tensors together exceed `max_bytes`. Tensors keep their order.
struct ShardPlan {
  struct File {
    std::string name;
    std::vector<std::size_t> tensors;  // indices
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;  // total size of all tensors
};
ShardPlan plan_shards(std::span<const TensorSpec> tensors, std::uint64_t max_bytes);

// The bytes that precede the data in a safetensors file without gaps: the header's length, and the header, padded so
// that the data start at a multiple of 8 bytes.
std::string safetensors_header(std::span<const TensorSpec> tensors);
// The content of model.safetensors.index.json.
std::string safetensors_index(const ShardPlan& plan, std::span<const TensorSpec> tensors);

}  // namespace strata::models

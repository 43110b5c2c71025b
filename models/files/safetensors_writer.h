#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"

namespace strata::models {

// A tensor to be written.
struct TensorSpec {
  std::string name;
  device::DType dtype;
  std::vector<std::int64_t> shape;
  bool of_bytes = false;  // elements are bytes (U8), whatever dtype says

  std::uint64_t bytes() const;
};

// Which tensors are in which file, and the files' names as transformers requires them: model.safetensors, or
// model-00001-of-0000N.safetensors if all tensors together exceed `most_bytes`. Tensors keep their order.
struct ShardPlan {
  struct File {
    std::string name;
    std::vector<std::size_t> tensors;  // indices
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;  // total size of all tensors
};
ShardPlan plan_shards(std::span<const TensorSpec> tensors, std::uint64_t most_bytes);

// The bytes before the data of a safetensors file whose tensors follow each other: the header's length, and the header,
// padded so that the data start at a multiple of 8 bytes.
std::string safetensors_header(std::span<const TensorSpec> tensors);
// The content of model.safetensors.index.json.
std::string safetensors_index(const ShardPlan& plan, std::span<const TensorSpec> tensors);

}  // namespace strata::models

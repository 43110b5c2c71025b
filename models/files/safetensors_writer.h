#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"

namespace strata::models {

// A tensor that is to be written.
struct TensorSpec {
  std::string name;
  device::DType dtype;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const;
};

// Names of the tensors of each file, and the files' names as transformers wants them: model.safetensors, or
// model-00001-of-0000N.safetensors if all of them together exceed `most_bytes`. Tensors keep their order.
struct ShardPlan {
  struct File {
    std::string name;
    std::vector<std::size_t> tensors;  // indices
  };
  std::vector<File> files;
  std::uint64_t bytes = 0;  // of all tensors
};
ShardPlan plan_shards(std::span<const TensorSpec> tensors, std::uint64_t most_bytes);

// What precedes the data of a safetensors file whose tensors lie one after the other: the header's length, and
// the header, padded so that data start at a multiple of 8 bytes.
std::string safetensors_header(std::span<const TensorSpec> tensors);
// model.safetensors.index.json.
std::string safetensors_index(const ShardPlan& plan, std::span<const TensorSpec> tensors);

}  // namespace strata::models

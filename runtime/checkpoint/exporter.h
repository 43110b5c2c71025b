#pragma once
#include <cstdint>
#include <filesystem>

#include "base/advance.h"
#include "device/numeric/dtype.h"
#include "runtime/checkpoint/model_folder.h"

namespace strata::runtime {

struct ExportOptions {
  device::DType dtype = device::DType::fp32;  // fp32 or bf16
  bool quantised = false;                     // what is quantised as it is; Error{usage} if nothing is
  Advance advance = {};
  std::uint64_t shard_bytes = 5'000'000'000;  // of tensors in one file, at most (or one tensor)
};

// Writes a model to `to` as a Hugging Face directory that transformers loads as it is: config.json,
// model.safetensors (or shards with their index), the tokenizer's files if they are known. Tensor by tensor, under a
// temporary name beside `to`, renamed when it is on the disk. Throws Error{usage} if `to` is there and not empty.
// tokenizer: the folder whose tokenizer's files are copied.
void export_model(const models::Config& config, const WeightSource& weights,
                  const std::optional<std::filesystem::path>& tokenizer, const std::filesystem::path& to,
                  const ExportOptions& options);
// The model of a folder. Returns what its configuration's reading found, for the user.
// An adapter is merged into the weights that it was trained beside, in fp32, which are rounded once.
std::vector<std::string> export_model(const ModelFolder& folder, const std::filesystem::path& to,
                                      const ExportOptions& options);
// A checkpoint's adapter as peft's folder: adapter_config.json and adapter_model.safetensors, in fp32. Throws
// Error{usage} if it has none.
void export_adapter(const ModelFolder& folder, const std::filesystem::path& to, const Advance& advance);

}  // namespace strata::runtime

#pragma once
// runtime/checkpoint/export/ reads and writes Hugging Face model directories: a checkpoint exported as one (here), and
// a directory or a checkpoint opened as a model (model_folder.h).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "device/numeric/dtype.h"
#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "models/model.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/plan/job.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

struct ExportOptions {
  device::DType dtype = device::DType::fp32;  // fp32 or bf16
  bool quantised = false;                     // write quantised tensors as they are stored; Error{usage} if there are
                                              // none
  bool unpacked_as_read = true;               // these keep the dtype to which their own files have them unpacked
  Advance advance = {};
  std::uint64_t shard_bytes = 5'000'000'000;  // the most bytes of tensors in one file; a larger tensor has a file to
                                              // itself
};

// Writes a model to `to` as a Hugging Face directory that transformers loads directly: config.json, model.safetensors
// (or shards and their index), and the tokenizer's files, copied from `tokenizer` if that is given. Tensors are written
// one at a time into a temporary folder next to `to`, which is renamed once everything is on the disk. Throws
// Error{usage} if `to` exists and is not empty.
void export_model(const models::Config& config, const WeightSource& weights,
                  const std::optional<std::filesystem::path>& tokenizer, const std::filesystem::path& to,
                  const ExportOptions& options);
// Exports the model of a folder. An adapter is merged into its base's weights in fp32 and rounded once. Returns notes
// for the user about the configuration.
std::vector<std::string> export_model(const ModelFolder& folder, const std::filesystem::path& to,
                                      const ExportOptions& options);
// The model of a workload whose adapter.path is set, with the adapter.
std::unique_ptr<models::Model> adapted_model(const Workload& workload);
// Exports that model, `adapted`, as one without adapter: A and B of adapter.path are merged into model.path as above.
std::vector<std::string> export_merged(const Workload& workload, const models::Model& adapted,
                                       const std::filesystem::path& to, const ExportOptions& options);
// Exports a checkpoint's adapter as a peft folder: adapter_config.json and adapter_model.safetensors, in fp32. Returns
// notes for the user. Throws Error{usage} if the checkpoint has no adapter.
std::vector<std::string> export_adapter(const ModelFolder& folder, const std::filesystem::path& to,
                                        const Advance& advance);

// A model's quantised matrices as the tensors of bitsandbytes' NF4, which transformers loads: NAME holds the codes,
// further tensors the scales.
class QuantisedExport {
 public:
  // `dtype`: the dtype of the tensors that are not quantised, to which quantised ones are unpacked, too. `read`: the
  // model's configuration, if quantised tensors that were read from files are unpacked as those say; it must outlive
  // the result.
  QuantisedExport(const models::Model& model, const WeightSource& weights, device::DType dtype,
                  const models::Config* read = nullptr);

  // True if the parameter is quantised in the source.
  bool has(std::size_t unit, std::size_t parameter) const { return formats_[unit][parameter].has_value(); }
  bool any() const;
  // The tensors of a parameter, in the order of write()'s index.
  std::vector<models::TensorSpec> tensors(std::size_t unit, std::size_t parameter) const;
  using Sink = std::function<void(std::span<const std::byte>)>;
  void write(std::size_t unit, std::size_t parameter, std::size_t tensor, const Sink& sink) const;
  // Adds quantization_config to a config.json.
  void describe(models::Config& config) const;

 private:
  const models::Parameter& parameter_of(std::size_t unit, std::size_t parameter) const {
    return model_.units[unit]->parameters()[parameter];
  }
  std::string state_of(std::size_t unit, std::size_t parameter) const;
  std::string unpacked_dtype(std::size_t unit, std::size_t parameter) const;

  const models::Model& model_;
  const WeightSource& weights_;
  device::DType dtype_;
  const models::Config* read_;
  std::vector<std::vector<std::optional<device::StorageFormat>>> formats_;  // one per unit and parameter
};

}  // namespace strata::runtime

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "base/json/json_writer.h"
#include "models/objective.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/weights/adapter/adapter_weights.h"
#include "runtime/weights/adapter/peft_folder.h"

namespace strata::runtime {
namespace {

// The workload's config, which names the architecture for the workload's objective.
models::Config config_of(const Workload& workload) {
  models::Config config = workload.config();
  if (const auto objective = workload.objective())
    config.override_key("architectures", fmt::format(R"(["{}"])", models::architecture_of(config, *objective)));
  return config;
}

}  // namespace

std::unique_ptr<models::Model> adapted_model(const Workload& workload) {
  models::RunShape shape{1, 1, device::DType::fp32, 1, false};
  shape.adapter = workload.adapter().shared();
  return models::make_model(config_of(workload), shape);
}

std::vector<std::string> export_merged(const Workload& workload, const models::Model& adapted,
                                       const std::filesystem::path& to, const ExportOptions& options) {
  const models::Config config = config_of(workload);
  const ModelFolder base(*workload.model_path());
  const auto plain = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
  const std::filesystem::path& folder = *workload.adapter().path;
  require_peft(folder);
  std::vector<std::string> notes = config.notes();
  const auto open = [&] { return base.weights(adapted); };
  std::unique_ptr<WeightSource> weights = peft_weights(open(), folder, adapted, {base.path(), open},
                                                       [&](const std::string& text) { notes.push_back(text); });
  if (const auto initialised = weights->initialised(); !initialised.empty())
    notes.push_back(
        fmt::format("neither {} nor {} has {}, so {} has random values for it: train it before use, or write "
                    "the model that the adapter was trained with to base_model_name_or_path in {}",
                    base.path().string(), folder.string(), fmt::join(initialised, ", "), to.string(),
                    (folder / kPeftConfigName).string()));
  export_model(config, *merged_weights(std::move(weights), adapted, *plain), base.hugging_face(), to, options);
  return notes;
}

}  // namespace strata::runtime

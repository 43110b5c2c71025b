#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "launcher/inspect/inspect.h"
#include "launcher/screen/printable.h"
#include "models/files/quantisation.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/weights/adapter/peft_folder.h"

namespace strata::launcher {
namespace {

constexpr std::size_t kMaxLines = 8;

// Prints the first faults, and the number of the others.
void print_faults(const std::vector<std::string>& faults, std::ostream& out) {
  for (std::size_t i = 0; i < std::min(faults.size(), kMaxLines); ++i)
    fmt::print(out, "broken: {}\n", printable(faults[i]));
  if (faults.size() > kMaxLines) fmt::print(out, "broken: and {} more\n", faults.size() - kMaxLines);
}

// The rank that the configuration gives to a module.
std::uint64_t rank_of(const models::Adapter& adapter, std::string_view module) {
  for (const auto& [pattern, rank] : adapter.rank_pattern)
    if (models::matches_end(pattern, module)) return static_cast<std::uint64_t>(rank);
  return static_cast<std::uint64_t>(adapter.rank);
}

std::vector<std::string> faults_of(const models::Safetensors& file, const models::Adapter& adapter) {
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  std::vector<std::string> faults;
  if (file.tensors().empty()) faults.emplace_back("the file has no tensors");
  for (const models::StoredTensor& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    if (!tensor.readable()) faults.push_back(fmt::format("{} is stored as {}", name, tensor.dtype));
    if (!name.starts_with(runtime::kPeftPrefix))
      faults.push_back(fmt::format("{} does not begin with {}", name, runtime::kPeftPrefix));
    const bool of_a = name.ends_with(kA);
    if (!of_a && !name.ends_with(kB)) continue;
    const std::string layer = name.substr(0, name.size() - (of_a ? kA : kB).size());
    if (!file.find(layer + std::string(of_a ? kB : kA)))
      faults.push_back(fmt::format("{} exists without {}", name, of_a ? kB : kA));
    const std::uint64_t rank = rank_of(
        adapter, std::string_view(layer).substr(std::min(layer.size(), std::string_view(runtime::kPeftPrefix).size())));
    if (tensor.shape.size() != 2 || tensor.shape[of_a ? 0 : 1] != rank)
      faults.push_back(fmt::format("{} is [{}], and {} gives it the rank {}", name, fmt::join(tensor.shape, ", "),
                                   runtime::kPeftConfigName, rank));
  }
  return faults;
}

// Says how many layers' adapters have no effect because B is zero: all of them before training, or in a file whose run
// lost their shards.
void print_zeros(const models::Safetensors& file, std::ostream& out) {
  std::size_t zeros = 0, all = 0;
  for (const models::StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(".lora_B.weight")) continue;
    ++all;
    zeros += std::ranges::all_of(tensor.bytes, [](std::byte byte) { return byte == std::byte{0}; });
  }
  if (zeros > 0)
    fmt::print(out, "{} of {} lora_B are zero: the adapter changes nothing {}\n", zeros, all,
               zeros == all ? "in the model" : "there");
}

}  // namespace

void print_adapter(const std::filesystem::path& folder, std::ostream& out) {
  runtime::PeftConfig config;
  try {
    config = runtime::read_peft_config(folder);
  } catch (const Error& error) {
    fmt::print(out, "{}: {}\n", error.code() == Exit::usage ? "not supported" : "broken", printable(error.what()));
    return;
  }
  const models::Adapter& a = config.adapter;
  const models::ModuleNames& targets = a.target_modules;
  fmt::print(out, "adapter (LoRA) of {}: rank {}, alpha {}, dropout {}{}{}\n",
             config.base.empty() ? "a model that is not named" : printable(config.base), a.rank, a.alpha, a.dropout,
             a.rslora ? ", rsLoRA" : "", a.dora ? ", DoRA" : "");
  fmt::print(out, "targets: {}\n",
             printable(targets.pattern ? *targets.pattern : fmt::format("{}", fmt::join(targets.names, ", "))));
  if (!a.modules_to_save.empty())
    fmt::print(out, "fully trained: {}\n", printable(fmt::format("{}", fmt::join(a.modules_to_save, ", "))));
  for (const std::string& note : config.notes) fmt::print(out, "{}\n", printable(note));
  runtime::require_peft(folder);
  const auto file = models::Safetensors::open(folder / runtime::kPeftWeightsName);
  print_faults(faults_of(file, a), out);
  print_zeros(file, out);
}

void print_quantisation(const models::Safetensors& file, const models::Config& config, std::ostream& out) {
  std::optional<models::Quantisation> said;
  try {
    said = models::quantisation_of(config);
  } catch (const Error& error) {
    fmt::print(out, "not supported: {}\n", printable(error.what()));
    return;
  }
  std::size_t matrices = 0;
  std::vector<std::string> faults;
  for (const models::StoredTensor& tensor : file.tensors()) {
    if (models::is_nf4(file, tensor.name)) {
      ++matrices;
      try {
        if (models::nf4_tensor(file, tensor.name).format() == device::StorageFormat::nf4_plain && said &&
            said->format == device::StorageFormat::nf4)
          faults.push_back(fmt::format(
              "the scales of {} are not quantised, but quantization_config in config.json says that they are",
              tensor.name));
      } catch (const Error& error) {
        faults.emplace_back(error.what());
      }
    } else if (tensor.name.ends_with(".absmax") && !models::belongs_to_nf4(file, tensor.name)) {
      faults.push_back(fmt::format("{} exists without its codes", tensor.name));
    }
  }
  if (matrices > 0) fmt::print(out, "quantised: {} in bitsandbytes' NF4\n", counted(matrices, "matrix", "matrices"));
  if (matrices > 0 && !said)
    faults.emplace_back("config.json has no quantization_config for them (bitsandbytes, load_in_4bit)");
  if (matrices == 0 && said)
    faults.emplace_back("quantization_config in config.json says that linear layers are in 4 bits, but none is");
  print_faults(faults, out);
}

}  // namespace strata::launcher

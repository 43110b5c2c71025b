#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/quantity.h"
#include "base/words.h"
#include "launcher/measure/memory/memory.h"
#include "runtime/plan/plan.h"

namespace strata::launcher {
namespace {

using device::DType;
using runtime::Recipe;
using runtime::Tier;
using Kind = runtime::Recompute::Kind;

constexpr std::array kPrecisions = {DType::fp32, DType::fp16, DType::bf16};
constexpr std::array kRecomputes = {Kind::none, Kind::sqrt, Kind::block};
constexpr std::array kAccumulations = {1, 2, 4};
constexpr std::array kOptimizers = {Tier::device, Tier::host, Tier::nvme};

// A setting's values by the names that --only uses.
constexpr std::array<std::string_view, 4> kNames = {"precision", "recompute", "accumulation", "optimizer"};
std::array<std::string, 4> values_of(const MemorySetting& setting) {
  return {std::string(device::name_of(setting.precision)), std::string(name_of(setting.recompute)),
          fmt::to_string(setting.accumulation),
          std::string(runtime::kTierNames[static_cast<std::size_t>(setting.optimizer)])};
}

std::vector<MemorySetting> all_settings() {
  std::vector<MemorySetting> out;
  for (const DType precision : kPrecisions)
    for (const Kind recompute : kRecomputes)
      for (const int accumulation : kAccumulations)
        for (const Tier optimizer : kOptimizers) out.push_back({precision, recompute, accumulation, optimizer});
  return out;
}

[[noreturn]] void refuse(const std::string& only) {
  fail(Exit::usage,
       "--only {}: it takes precision=fp32,fp16,bf16, recompute=none,sqrt,block, accumulation=1,2,4 or "
       "optimizer=device,host,nvme, or some of these values",
       only);
}

// Removes the settings that `only` excludes.
void keep(const std::string& only, std::vector<MemorySetting>& settings) {
  const std::size_t equals = only.find('=');
  const auto at = std::find(kNames.begin(), kNames.end(), only.substr(0, equals));
  if (equals == std::string::npos || at == kNames.end()) refuse(only);
  const auto key = static_cast<std::size_t>(at - kNames.begin());
  const std::vector<std::string_view> values = split_list(std::string_view(only).substr(equals + 1), ',');
  const std::vector<MemorySetting> all = all_settings();
  for (const std::string_view value : values)
    if (std::none_of(all.begin(), all.end(), [&](const auto& s) { return values_of(s)[key] == value; })) refuse(only);
  if (values.empty()) refuse(only);
  std::erase_if(settings, [&](const MemorySetting& setting) {
    return std::find(values.begin(), values.end(), values_of(setting)[key]) == values.end();
  });
}

}  // namespace

std::vector<MemorySetting> memory_settings(std::span<const std::string> only, bool has_drive) {
  std::vector<MemorySetting> settings = all_settings();
  for (const std::string& one : only) keep(one, settings);
  if (!has_drive) std::erase_if(settings, [](const MemorySetting& s) { return s.optimizer == Tier::nvme; });
  if (settings.empty())
    fail(Exit::usage, "--only leaves no setting{}",
         has_drive ? "" : ": the optimizer on NVMe needs memory.nvme, a folder on the drive");
  return settings;
}

std::int64_t batch_of(const Recipe& recipe) {
  const Recipe::Training& training = recipe.training;
  if (training.global_batch_size) return *training.global_batch_size;
  const std::int64_t batch = training.micro_batch_size * recipe.accumulation_steps(1);
  return batch == 1 ? kAccumulations.back() : batch;
}

Recipe recipe_with(Recipe recipe, const MemorySetting& setting, std::int64_t batch, int steps) {
  Recipe::Training& training = recipe.training;
  if (batch % setting.accumulation != 0)
    fail(Exit::usage,
         "a batch of {} cannot be divided into {} micro-batches: set training.global_batch_size to a multiple, or "
         "leave this out with --only accumulation=1",
         counted(batch, "sequence"), setting.accumulation);
  training.precision = setting.precision;
  training.recompute = {setting.recompute, {}};
  training.micro_batch_size = batch / setting.accumulation;
  training.gradient_accumulation_steps = setting.accumulation;
  training.global_batch_size.reset();
  training.max_steps = steps;
  recipe.zero.optimizer = setting.optimizer;
  if (setting.recompute == Kind::none) recipe.zero.activations = Tier::device;  // only inputs of recomputed blocks move
  recipe.checkpoint = {};
  recipe.evaluation = {};
  recipe.control = {};
  recipe.control.listen = "off";
  recipe.report = {};
  return recipe;
}

}  // namespace strata::launcher

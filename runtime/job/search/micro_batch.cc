#include "runtime/job/search/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "models/families/families.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/job/requirements.h"

namespace strata::runtime {
namespace {

constexpr std::string_view kKey = "training.micro_batch_size";

// Plans the recipe's step with one micro-batch size after another.
class MicroBatchSearch {
 public:
  MicroBatchSearch(const Workload& workload, int ranks, const Capacity& capacity)
      : workload_(workload), recipe_(workload.recipe), ranks_(ranks), capacity_(capacity) {}

  LargestBatch run() {
    if (const auto& global = recipe_.training.global_batch_size) {
      const int ranks = recipe_.data_ranks(ranks_);
      if (*global % ranks != 0)
        fail(Exit::usage,
             "training.global_batch_size = {} cannot be divided evenly over {} ranks, whatever the micro-batch size: "
             "give a "
             "multiple of {}",
             *global, ranks, ranks);
      among_divisors(*global / ranks);
    } else {
      among_all();
    }
    return std::move(found_);
  }

 private:
  // The largest micro-batch that the key and a model's limit on tokens allow, in sequences.
  std::int64_t most() const {
    const std::int64_t of_tokens = static_cast<std::int64_t>(models::kMaxTokens) / recipe_.data.seq_len;
    return std::clamp<std::int64_t>(of_tokens, 1, kMaxSequences);
  }

  Recipe of_size(std::int64_t size) const { return with_micro_batch(recipe_, size); }

  bool fits_with(std::int64_t size) {
    const std::vector<Job> stages = jobs_of_stages(workload_.with(of_size(size)), ranks_, capacity_);
    const bool all = std::ranges::all_of(stages, [&](const Job& stage) { return fits(stage.plan, capacity_); });
    const Job& largest =
        *std::ranges::max_element(stages, {}, [](const Job& stage) { return stage.plan.memory[0].peak; });
    (all ? found_.fits : found_.too_large) = {size, largest.plan.memory};
    return all;
  }

  // Tries the largest first: a step with a single micro-batch needs no gradient sums, so it can fit although smaller
  // sizes do not.
  void among_divisors(std::int64_t part) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = 1; size <= most() && size <= part / size; ++size)
      if (part % size == 0) {
        sizes.push_back(size);
        if (part / size != size && part / size <= most()) sizes.push_back(part / size);
      }
    std::sort(sizes.rbegin(), sizes.rend());
    std::erase_if(sizes, [&](std::int64_t size) { return !takes_micro_batches(of_size(size), ranks_); });
    if (sizes.empty()) sizes.push_back(1);  // make_job() says which key allows none
    for (const std::int64_t size : sizes) {
      if (size < sizes.front() && part / size > kMaxCalls) return;  // make_job() would refuse so long a task list
      if (fits_with(size)) return;
    }
  }

  // Memory grows with the micro-batch: double it until a step does not fit, then bisect. The growth is not strict,
  // because the buffers of a larger micro-batch may happen to pack more tightly, so the next few sizes are tried as
  // well. All sizes are multiples of `one`, and are counted in units of it.
  void among_all() {
    constexpr std::int64_t kLookAhead = 8;
    const std::int64_t one = multiple_of_sequences(recipe_), largest = std::max<std::int64_t>(1, most() / one);
    const auto fits_with = [&](std::int64_t size) { return this->fits_with(size * one); };
    std::int64_t fitting = 0, above = 1;
    while (above <= largest && fits_with(above)) fitting = std::exchange(above, 2 * above);
    above = std::min(above, largest + 1);
    while (above - fitting > 1) {
      const std::int64_t middle = fitting + (above - fitting) / 2;
      (fits_with(middle) ? fitting : above) = middle;
    }
    for (std::int64_t size = fitting + 2; size <= std::min(fitting + kLookAhead, largest); ++size)
      if (fits_with(size)) fitting = size;
    if (fitting < largest) (void)fits_with(fitting + 1);  // fills too_large
  }

  const Workload& workload_;
  const Recipe& recipe_;
  int ranks_;
  const Capacity& capacity_;
  LargestBatch found_;
};

// The capacity that the recipe's memory.* keys give a rank.
Capacity capacity_given(const Recipe::Memory& memory, device::Device device) {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const bool both = memory.host && device.kind == device::Kind::cpu;
  return {{*memory.device, memory.host.value_or(kUnlimited), kUnlimited},
          both ? *memory.device + *memory.host : kUnlimited,
          device};
}

std::string sentence(const LargestBatch& found, const Recipe& recipe) {
  if (!found.fits) return {};
  const auto& global = recipe.training.global_batch_size;
  std::string text = fmt::format("{} = auto: {}, the largest that fits memory.device ({}){}; a step takes {}", kKey,
                                 found.fits->size, bytes_text(*recipe.memory.device),
                                 global ? fmt::format(" and divides training.global_batch_size = {}", *global) : "",
                                 memory_text(found.fits->memory));
  if (found.too_large)
    text += fmt::format("; with {} it would take {}", found.too_large->size, memory_text(found.too_large->memory));
  return text;
}

}  // namespace

LargestBatch largest_micro_batch(const Workload& workload, int ranks, const Capacity& capacity) {
  return MicroBatchSearch(workload, ranks, capacity).run();
}

Recipe with_micro_batch(Recipe recipe, std::int64_t size) {
  recipe.training.micro_batch_size = size;
  return recipe;
}

std::optional<ResolvedBatch> resume_micro_batch(const Recipe& recipe) {
  if (recipe.training.micro_batch_size != kAutomaticBatch) return std::nullopt;
  for (const FoundCheckpoint& found : checkpoints_to_resume(recipe.checkpoint).found) {
    if (!found.damage.empty()) continue;
    const Manifest manifest = read_manifest(found.path);
    const auto stored = manifest.recipe.find(std::string(kKey));
    if (stored == manifest.recipe.end()) continue;
    const std::int64_t size = std::stoll(stored->second);
    return ResolvedBatch{size, fmt::format("{} = auto: {}, as in {}", kKey, size, found.path.string())};
  }
  return std::nullopt;
}

ResolvedBatch resolve_micro_batch(const Workload& workload, int ranks, device::Device device) {
  const Recipe& recipe = workload.recipe;
  if (recipe.training.micro_batch_size != kAutomaticBatch) return {recipe.training.micro_batch_size};
  if (auto resumed = resume_micro_batch(recipe)) return *std::move(resumed);
  const LargestBatch found = largest_micro_batch(workload, ranks, capacity_given(recipe.memory, device));
  return {found.size(), sentence(found, recipe)};
}

}  // namespace strata::runtime

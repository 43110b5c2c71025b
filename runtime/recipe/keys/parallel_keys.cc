#include <fmt/format.h>

#include <bit>
#include <utility>

#include "device/ops/elementwise.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

constexpr std::int64_t kMaxRanks = 1 << 20, kMaxShards = 1 << 10;
constexpr auto kMaxTensor = static_cast<std::int64_t>(device::kMaxPieces);  // their partial sums are added at once

RecipeKey tensor_shards() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    const auto shards = integer_in(v, 1, kMaxShards);
    return shards && std::has_single_bit(static_cast<std::uint64_t>(*shards)) &&
           store(shards, recipe.parallel.tensor_shards);
  };
  return plain("parallel.tensor_shards", fmt::format("a power of two from 1 to {}", kMaxShards),
               "virtual shards in which blocks and vocabulary are computed, whose sums have a fixed order: part of the "
               "numerics, so a checkpoint is resumed with the same value; default: the checkpoint's when resuming, "
               "else parallel.tensor",
               STRATA_AT(parallel.tensor_shards), set);
}

RecipeKey split() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path&) {
    auto blocks = list_in(v, [](const Value& item) { return integer_in(item, 0, kMaxRanks); });
    if (blocks && blocks->empty()) return false;
    if (!blocks) blocks = named_in<std::vector<std::int64_t>>(v, {{"auto", {}}});
    return store(std::move(blocks), recipe.parallel.split);
  };
  auto text = [](const Recipe& recipe) {
    return recipe.parallel.split.empty() ? json_string("auto") : text_of_list(recipe.parallel.split);
  };
  return {"parallel.split", fmt::format("\"auto\" or a list of integers from 0 to {}", kMaxRanks),
          "blocks per stage, or per chunk of the stages, in the order of the model; auto: the fastest split whose "
          "stages fit",
          set, text};
}

template <typename At>
RecipeKey tier(std::string name, At at, std::string meaning) {
  return choice<Tier>(std::move(name), {{"device", Tier::device}, {"host", Tier::host}, {"nvme", Tier::nvme}}, at,
                      std::move(meaning));
}

template <typename At>
RecipeKey ranks_of_group(std::string name, At at, std::string meaning) {
  return integer_or<std::int64_t>(std::move(name), {{"all", kAllRanks}, {"node", kRanksOfANode}}, kMaxRanks, at,
                                  std::move(meaning));
}

}  // namespace

std::vector<RecipeKey> parallel_keys() {
  std::vector<RecipeKey> keys = {
      integer("parallel.tensor", 1, kMaxTensor, STRATA_AT(parallel.tensor),
              "ranks that share each layer (tensor parallelism): a power of two that divides parallel.tensor_shards"),
      flag("parallel.sequence", STRATA_AT(parallel.sequence),
           "with parallel.tensor: between products, each rank has only its part of the rows (sequence parallelism), "
           "with the same bits"),
      integer("parallel.stages", 1, kMaxRanks, STRATA_AT(parallel.stages),
              "pipeline stages, each of which holds consecutive units of the model, or several pieces of it "
              "(parallel.chunks)"),
      choice<Schedule>("parallel.schedule",
                       {{"1f1b", Schedule::one_forward_one_backward},
                        {"interleaved", Schedule::interleaved},
                        {"all_forward_all_backward", Schedule::all_forward_all_backward}},
                       STRATA_AT(parallel.schedule),
                       "the order of a stage's micro-batches: one forward, one backward; interleaved over "
                       "parallel.chunks pieces of the stage, which idles less and sends more; or all forwards first, "
                       "which keeps the activations of all"),
      integer("parallel.chunks", 1, kMaxRanks, STRATA_AT(parallel.chunks),
              "pieces of the model per stage: at least 2 with the interleaved schedule, which needs a multiple of "
              "parallel.stages micro-batches per rank and step; 1 with the others"),
      split(),
  };
  keys.insert(keys.begin() + 1, tensor_shards());
  return keys;
}

std::vector<RecipeKey> zero_keys() {
  return {
      integer("zero.stage", 0, 3, STRATA_AT(zero.stage),
              "the state that is sharded over the ranks: 1 optimizer, 2 also gradients, 3 also parameters"),
      tier("zero.parameters", STRATA_AT(zero.parameters), "tier of the parameters"),
      tier("zero.gradients", STRATA_AT(zero.gradients), "tier of the gradients"),
      tier("zero.optimizer", STRATA_AT(zero.optimizer), "tier of masters and moments"),
      tier("zero.activations", STRATA_AT(zero.activations), "tier of the kept activations"),
      ranks_of_group(
          "zero.parameters_group", STRATA_AT(zero.parameters_group),
          "stage 3: number of neighbouring ranks that together hold all parameters and gather them from each "
          "other; node: the ranks of a node; must divide zero.gradients_group; all: equal to it"),
      ranks_of_group("zero.gradients_group", STRATA_AT(zero.gradients_group),
                     "stages 2 and 3: the same for gradient sums, of which each group holds a copy; must divide "
                     "zero.optimizer_group; all: equal to it"),
      ranks_of_group("zero.optimizer_group", STRATA_AT(zero.optimizer_group),
                     "stages 1 to 3: the same for masters and moments; each group updates its own copy"),
  };
}

}  // namespace strata::runtime

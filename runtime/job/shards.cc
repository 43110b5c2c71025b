#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "device/ops/elementwise.h"
#include "runtime/job/requirements.h"

namespace strata::runtime {

namespace {

// The number of virtual shards may be a checkpoint's or the user's, and each rank computes equally many.
void require_whole_shares(const Recipe::Parallel& parallel, std::size_t shards) {
  if (parallel.tensor > static_cast<int>(device::kMaxPieces))
    fail(Exit::usage,
         "parallel.tensor = {} is too large, because at most {} ranks can share a layer: set parallel.stages or "
         "zero.stage = 3 to divide the model over more ranks",
         parallel.tensor, device::kMaxPieces);
  if (!std::has_single_bit(static_cast<unsigned>(parallel.tensor)))
    fail(Exit::usage,
         "parallel.tensor = {} is not a power of two, which the order of the sums over a layer's shards requires: use "
         "{} or {}",
         parallel.tensor, std::bit_floor(static_cast<unsigned>(parallel.tensor)),
         std::bit_ceil(static_cast<unsigned>(parallel.tensor)));
  if (shards % static_cast<std::size_t>(parallel.tensor) != 0)
    fail(Exit::usage,
         "parallel.tensor = {} does not divide parallel.tensor_shards = {}, which is part of the numerics: use at most "
         "{} per block, or start with more shards",
         parallel.tensor, shards, counted(shards, "rank"));
}

// The name in messages for ranks that differ in their data.
std::string_view noun_of_data(int data, int ranks) {
  return data == ranks ? "rank" : "data rank";
}

}  // namespace

void require_mesh(const Recipe& recipe, std::size_t shards, int ranks) {
  const Recipe::Parallel& parallel = recipe.parallel;
  require_whole_shares(parallel, shards);
  recipe.require_whole_replicas(ranks);
  if (parallel.stages == 1 && !parallel.split.empty()) {
    const std::size_t stages = parallel.split.size() / static_cast<std::size_t>(parallel.chunks);
    fail(Exit::usage,
         "parallel.split = [{}] says how many blocks each stage has, but parallel.stages is 1: {}leave parallel.split "
         "out",
         fmt::join(parallel.split, ", "), stages > 1 ? fmt::format("set parallel.stages = {}, or ", stages) : "");
  }
}

void require_stages(const Recipe& recipe, int ranks) {
  const int stages = recipe.parallel.stages, chunks = static_cast<int>(recipe.parallel.chunks);
  const bool interleaved = recipe.parallel.schedule == Schedule::interleaved;
  if (chunks > 1 && !interleaved)
    fail(Exit::usage,
         "parallel.chunks = {} is for the interleaved schedule: set parallel.schedule = \"interleaved\", or leave "
         "parallel.chunks out",
         chunks);
  if (interleaved && stages == 1)
    fail(Exit::usage,
         "parallel.schedule = \"interleaved\" takes micro-batches through several pieces of each pipeline stage, but "
         "parallel.stages is 1: set parallel.stages, or leave parallel.schedule out");
  if (interleaved && chunks == 1)
    fail(Exit::usage,
         "parallel.schedule = \"interleaved\" needs several pieces of the model per stage: set parallel.chunks to 2 or "
         "more, or use \"1f1b\"");
  if (stages == 1) return;
  if (const int steps = recipe.accumulation_steps(ranks); !takes_micro_batches(recipe.parallel, steps))
    fail(Exit::usage,
         "the interleaved schedule takes as many micro-batches at a time as there are stages, but a rank has {} per "
         "step (training.gradient_accumulation_steps or global_batch_size), and {} is not a multiple of "
         "parallel.stages = {}: make it {}",
         counted(steps, "micro-batch", "micro-batches"), steps, stages, (steps + stages - 1) / stages * stages);
  if (recipe.memory.order == AccumulationOrder::vertical)
    fail(Exit::usage,
         "memory.order = \"vertical\" takes all micro-batches through a unit before the next one, but a pipeline stage "
         "must pass on each micro-batch as soon as it can: use \"horizontal\", or parallel.stages = 1");
}

bool takes_micro_batches(const Recipe::Parallel& parallel, std::int64_t micro_batches) {
  return parallel.chunks == 1 || micro_batches % parallel.stages == 0;
}

int multiple_of_micro_batches(const Recipe& recipe, int ranks) {
  const auto group = static_cast<int>(recipe.training.reduce_group);
  const int of_group = group / std::gcd(group, recipe.data_ranks(ranks));
  return recipe.parallel.chunks > 1 ? std::lcm(of_group, recipe.parallel.stages) : of_group;
}

std::int64_t multiple_of_sequences(const Recipe& recipe) {
  const std::int64_t tensor = recipe.parallel.tensor;
  return recipe.parallel.sequence ? tensor / std::gcd(tensor, recipe.data.seq_len) : 1;
}

bool takes_micro_batches(const Recipe& recipe, int ranks) {
  const std::int64_t size = recipe.training.micro_batch_size, at_once = size * recipe.data_ranks(ranks);
  if (size % multiple_of_sequences(recipe) != 0) return false;
  const auto& global = recipe.training.global_batch_size;
  if (global && *global % at_once != 0) return false;
  const std::int64_t steps = global ? *global / at_once : recipe.training.gradient_accumulation_steps.value_or(1);
  return steps % multiple_of_micro_batches(recipe, ranks) == 0;
}

bool is_divisible_width(std::size_t width) {
  return width % 4 == 0;
}

void require_divisible_rows(const Recipe& recipe, const models::Model& model) {
  const std::int64_t batch = recipe.training.micro_batch_size, length = recipe.data.seq_len;
  if (batch % multiple_of_sequences(recipe) != 0)
    fail(Exit::usage,
         "parallel.sequence divides the rows of a micro-batch, {} x {} tokens, over parallel.tensor = {} ranks: make "
         "training.micro_batch_size or data.seq_len a multiple of {}, or leave parallel.sequence out",
         batch, length, recipe.parallel.tensor, recipe.parallel.tensor);
  if (!is_divisible_width(model.hidden))
    fail(Exit::usage,
         "parallel.sequence needs a model whose width is a multiple of 4, but this one's is {}: leave "
         "parallel.sequence out",
         model.hidden);
}

std::optional<std::string> note_of_layers_over_nodes(const Mesh& mesh, const std::vector<int>& nodes) {
  if (mesh.tensor == 1 || nodes.empty()) return {};
  const auto spread = [&](int tensor) {  // the maximum number of nodes for one group of ranks that share a layer
    int most = 1;
    for (std::size_t first = 0; first < nodes.size(); first += static_cast<std::size_t>(tensor)) {
      const auto group = std::span(nodes).subspan(first, static_cast<std::size_t>(tensor));
      most = std::max(most, static_cast<int>(std::set<int>(group.begin(), group.end()).size()));
    }
    return most;
  };
  const int over = spread(mesh.tensor);
  if (over == 1) return {};
  int within = mesh.tensor / 2;
  while (within > 1 && spread(within) > 1) within /= 2;
  const std::string advice = !std::ranges::is_sorted(nodes)
                                 ? "start the ranks node by node (mpirun --map-by slot, srun --distribution=block)"
                             : within > 1 ? fmt::format("with {} they would stay within a node", within)
                                          : fmt::format(
                                                "start a multiple of {} ranks on each node, or use parallel.stages "
                                                "across nodes",
                                                mesh.tensor);
  return fmt::format(
      "parallel.tensor = {}: ranks that share a layer are on {} nodes, so the sums of every block cross the network "
      "several times per micro-batch; {}",
      mesh.tensor, over, advice);
}

void require_whole_runs(const Recipe& recipe, int ranks) {
  const std::int64_t group = recipe.training.reduce_group, steps = recipe.accumulation_steps(ranks);
  const int data = recipe.data_ranks(ranks);
  const std::int64_t count = steps * data;
  if (count % group == 0) return;
  // The nearest numbers that divide it.
  std::int64_t below = group, above = group;
  while (count % below != 0) --below;
  while (above < count && count % above != 0) ++above;
  fail(Exit::usage, "training.reduce_group = {} does not divide the {} of a step ({} with {} each): set {}", group,
       counted(count, "micro-batch", "micro-batches"), counted(data, noun_of_data(data, ranks)), steps,
       above > count ? fmt::format("{}", below) : fmt::format("{} or {}", below, above));
}

std::optional<std::string> note_of_runs(const StepPlan& plan) {
  const Mesh& mesh = plan.mesh();
  const int node = mesh.data_per_node();
  if (plan.reduce_group == 1 || plan.sums_in_nodes() || node <= 1) return {};
  if (node == mesh.data()) return {};  // no gradient crosses nodes
  return fmt::format(
      "training.reduce_group = {} is not the number of {}s per node, {}: gradients cross nodes before they are summed; "
      "with {}, each node would send only its sum (a different value rounds differently)",
      plan.reduce_group, noun_of_data(mesh.data(), mesh.world), node, node);
}

std::string shards_text(std::size_t shards) {
  if (shards == 1)
    return "parallel.tensor_shards = 1: tensor parallelism needs at least parallel.tensor shards, which change the "
           "bits";
  std::vector<std::size_t> degrees;
  for (std::size_t degree = 1; degree < shards; degree *= 2) degrees.push_back(degree);
  return fmt::format("parallel.tensor_shards = {}: the bits are the same for parallel.tensor = {} or {}", shards,
                     fmt::join(degrees, ", "), shards);
}

}  // namespace strata::runtime

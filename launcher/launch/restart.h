#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/launch/ranks/allocation.h"
#include "launcher/launch/ranks/attempt.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// Why a run that ended so is not started again; empty: it is. `before`: how the start before it ended.
std::string why_final(const Ended& ended, const std::optional<Ended>& before);

// Seconds to wait before restart `number`, from 1: longer each time.
double restart_wait(int number);

// Sequences of a step of `ranks` ranks, and what sets them for another number: accumulation if the recipe has it,
// else the batch.
std::int64_t global_batch(const runtime::Recipe& recipe, int ranks);
std::vector<std::string> batch_sets(const runtime::Recipe& recipe, std::int64_t batch, int ranks);

// The checkpoints of a folder, with the time each was written.
using Checkpoints = std::set<std::pair<std::filesystem::path, std::filesystem::file_time_type>>;
Checkpoints checkpoints_in(const std::optional<std::filesystem::path>& folder);
// What makes a start go on from what the launch itself has written since `before`, whatever checkpoint.resume says of
// the first start.
std::vector<std::string> resume_sets(const runtime::Recipe& recipe, const Checkpoints& before);

// What keeps control.listen and control.metrics from an address that only one node has (HOST:PORT, but neither of this
// host alone nor of any), as for a rank 0 that has moved: KEY=VALUE each.
std::vector<std::string> front_sets(const runtime::Recipe& recipe);

// The most ranks that these nodes have room for, that `batch` divides by with the recipe's micro-batch, and of which
// `fits` says that the plan does; empty: there are none.
std::vector<Share> most_ranks(const std::vector<Host>& hosts, int room, const runtime::Recipe& recipe,
                              std::int64_t batch, const std::function<bool(const std::vector<Share>&)>& fits);

// How launch ends if it is asked to stop, so many times, while no rank runs. As from ranks that were stopped, the code
// says whether there is something to resume from. `kept`: a checkpoint. `started`: ranks ran before. `resume`:
// checkpoint.resume as the user has it.
struct BetweenStarts {
  Exit code;
  std::string text;
};
BetweenStarts stopped_between_starts(bool kept, bool started, int times, std::string_view resume = "auto");

}  // namespace strata::launcher

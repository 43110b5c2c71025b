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

// Why a run that ended like this is not restarted; empty if it is. `before`: how the previous start ended.
std::string why_final(const Ended& ended, const std::optional<Ended>& before);

// Seconds to wait before restart `number`, counted from 1; longer each time.
double restart_wait(int number);

// The number of sequences in a step of `ranks` ranks, and the keys that keep it for another number of ranks:
// accumulation if the recipe sets it, otherwise the batch.
std::int64_t global_batch(const runtime::Recipe& recipe, int ranks);
std::vector<std::string> batch_sets(const runtime::Recipe& recipe, std::int64_t batch, int ranks);

// The checkpoints in a folder, with the times they were written.
using Checkpoints = std::set<std::pair<std::filesystem::path, std::filesystem::file_time_type>>;
Checkpoints checkpoints_in(const std::optional<std::filesystem::path>& folder);
// The keys that make a restart resume from what this launch has written since `before`, whatever checkpoint.resume says
// for the first start.
std::vector<std::string> resume_sets(const runtime::Recipe& recipe, const Checkpoints& before);

// The keys that keep control.listen and control.metrics off an address that only one node has (HOST:PORT, neither
// loopback nor any address), as KEY=VALUE: rank 0 may have moved to another node.
std::vector<std::string> front_sets(const runtime::Recipe& recipe);

// The largest number of whole replicas that these nodes have room for, that divides `batch` together with the recipe's
// micro-batch, and whose plan fits according to `fits`; empty if there is none. The ranks of a tensor group share a
// node if there is room for that.
std::vector<Share> most_ranks(const std::vector<Host>& hosts, int room, const runtime::Recipe& recipe,
                              std::int64_t batch, const std::function<bool(const std::vector<Share>&)>& fits);
// Why most_ranks() found none, in words that follow "launch ends: ".
std::string why_no_ranks(const std::vector<Host>& hosts, int room, const runtime::Recipe& recipe, std::int64_t batch);
// The sentence about the room for ranks that `shares` leaves unused; empty if there is none.
std::string idle_text(const std::vector<Host>& hosts, int room, const std::vector<Share>& shares,
                      const runtime::Recipe& recipe, std::int64_t batch);

// How launch ends if it is asked to stop, this many times, while no rank runs. The code says whether there is something
// to resume from, as it does for ranks that were stopped. `kept`: there is a checkpoint. `started`: ranks ran before.
// `resume`: checkpoint.resume as the user set it.
struct BetweenStarts {
  Exit code;
  std::string text;
};
BetweenStarts stopped_between_starts(bool kept, bool started, int times, std::string_view resume = "auto");

}  // namespace strata::launcher

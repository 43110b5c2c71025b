#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/capacity.h"
#include "runtime/plan/job.h"
#include "runtime/run/metrics/score_collector.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// The text that `train` prints at the start and end of a run, to rank 0's stderr, in lines of at most 100 columns.

// The model, its layout over ranks and memory, notes about the recipe (LoadedRecipe::notes) and the job, and where
// files go. Printed before anything is allocated.
void describe_run(const runtime::Job& job, std::span<const std::string> notes_of_recipe,
                  const runtime::RankDevice& rank_device, const comm::World& world, const std::string& threads);
// "ZeRO-3 over 2 ranks"; "over 1 data rank" if several of the run's `ranks` hold the model together.
std::string zero_text(std::uint64_t stage, int data_ranks, int ranks);
// The data on which the run trains, and for how long. Printed when it is known at which step the run resumes.
void describe_data(const runtime::Job& job, const runtime::Trainer& trainer);

// A summary of the steps of a run.
struct RunEnd {
  double seconds;    // the time of all steps
  double median_ms;  // the median time of a step
  runtime::StepReport first, last;
};
// `typed`: the recipe as the user typed it, in words of a command. Prints loss, speed, where a step's time went (with
// `machine`, next to the prediction), planned and measured memory, where the files are, and what to do next.
void describe_end(const std::string& typed, const runtime::Job& job, const runtime::Summary& summary, const RunEnd& end,
                  const std::optional<runtime::Machine>& machine, int ranks_per_node);
// fp16: the number of steps, how many of them were skipped, and how many of these because the forward was not finite.
struct SkippedSteps {
  std::int64_t steps, skipped, forwards;
};
// How many steps were skipped, and what to do about it. `scale`: the loss scale at the end.
std::string skipped_text(const SkippedSteps& skipped, float scale);
// Why a run failed that skipped every step and so trained nothing.
std::string nothing_applied_text(const runtime::Recipe& recipe, const SkippedSteps& skipped, float scale);
// "my.toml --set a=1": the words that name the same recipe in another command, except what this run resumed from.
std::string typed_recipe(const std::optional<std::filesystem::path>& file, const std::vector<std::string>& sets);

// Lines "LABEL  PART, PART, ..." of at most `columns`, broken between parts. Further lines are indented to match.
std::vector<std::string> wrapped(const std::string& label, const std::vector<std::string>& parts,
                                 std::size_t columns = 91);

// The variable in which `strata launch` passes to its ranks the checkpoint.resume of the user's command line. At a
// restart, launch adds a value that the user did not type.
inline constexpr const char* kTypedResume = "STRATA_LAUNCH_RESUME";

// The command that resumes a stopped run: "the same command", with what must be added to it. `resume`:
// checkpoint.resume on this process's command line.
std::string resume_command(std::string_view resume);

// The output of `strata eval` for a classifier: its metrics, a table of classes, and the confusion matrix if there are
// few classes. The columns of the matrix have names if these fit, otherwise numbers. Lines are at most `columns` wide.
// Labels that do not fit are only in --json, and a line says so. of: what was judged, "texts" or "words".
std::string class_text(const runtime::ClassReport& report, std::span<const std::string> names, std::string_view of,
                       std::size_t columns);

}  // namespace strata::launcher

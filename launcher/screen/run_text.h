#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "runtime/forecast/machine.h"
#include "runtime/job/make_job.h"
#include "runtime/job/seat.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// What `train` says at the start and at the end of a run, on rank 0's stderr, in lines of at most 100 columns.

// The model, how it is laid out over ranks and memory, and where things go; before anything is allocated.
void describe_run(const runtime::Job& job, const runtime::Seat& seat, const comm::World& world,
                  const std::string& threads);
// What it trains on and for how long; once the run knows where it goes on.
void describe_data(const runtime::Job& job, const runtime::Trainer& trainer);

// What a run came to.
struct RunEnd {
  double seconds;    // of all its steps
  double median_ms;  // of a step
  runtime::StepReport first, last;
};
// `typed`: the recipe as it was given, words of a command. Loss, speed, where a step's time went (with `machine` what
// was predicted for it beside), memory as planned and as measured, where the files lie, and what to do next.
void describe_end(const std::string& typed, const runtime::Job& job, const runtime::Summary& summary, const RunEnd& end,
                  const std::optional<runtime::Machine>& machine, int ranks_per_node);
// fp16: of `steps`, how many were skipped, and how many of those because the forward was not finite.
struct SkippedSteps {
  std::int64_t steps, skipped, forwards;
};
// How many there are, and what to do about it. `scale`: the loss scale that the run has come to.
std::string skipped_text(const SkippedSteps& skipped, float scale);
// The same of a run that skipped every step, so that nothing was trained: why it has failed.
std::string nothing_applied_text(const runtime::Recipe& recipe, const SkippedSteps& skipped, float scale);
// "my.toml --set a=1": what names the same recipe in another command. What this run was to resume from is left out.
std::string typed_recipe(const std::optional<std::filesystem::path>& file, const std::vector<std::string>& sets);

// Lines "LABEL  PART, PART, ..." of at most `columns`, cut between parts; those behind the first are indented alike.
std::vector<std::string> wrapped(const std::string& label, const std::vector<std::string>& parts,
                                 std::size_t columns = 91);

// The variable in which `strata launch` gives its ranks the checkpoint.resume of its own command line: at a restart it
// adds one that nobody typed.
inline constexpr const char* kTypedResume = "STRATA_LAUNCH_RESUME";

// What a user has to run so that a stopped run goes on: "the same command", with what has to be added to it. `resume`:
// checkpoint.resume of this process's command line.
std::string resume_command(std::string_view resume);

}  // namespace strata::launcher

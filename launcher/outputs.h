#pragma once
// launcher/ is the program: main.cc has every command with its options, and commands/ a file per command. rank/ is a
// process among ranks (rank/run_as_rank.h first), screen/ is what the user is told, measure/ times this machine
// (measure/bench.h), inspect/ looks into files (inspect/inspect.h), report/ makes pages, launch/ starts runs on many
// nodes, control/ watches and steers them. What may be written over, overwrite.h says. There is no mathematics and no
// planning here.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// A file that a command reads or writes, under the key or option that names it.
struct NamedFile {
  std::string name;
  std::filesystem::path path;
};

// Throws Error{usage}, before anything is opened, if one of `outputs` leads to the same file as another or as one of
// `inputs`, under whatever name: writing it would destroy that.
void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Throws Error{usage}, before anything is opened, if one of `outputs`, files or folders, lies in checkpoint.dir under a
// name that a run writes or removes there itself, or below one: its lock, control.json, its checkpoints.
void require_outside_checkpoints(const std::vector<NamedFile>& outputs, const runtime::Recipe& recipe);

// What a run of this recipe reads, and what it writes as reports. Files of a model in model.path and of checkpoints in
// checkpoint.dir are among the former; patterns of data.* that match nothing are left to those who open them.
// report_folders: report.dir, report.tensorboard and a socket of control.listen, of which no file is written over.
std::vector<NamedFile> inputs_of(const runtime::Recipe& recipe, const std::optional<std::filesystem::path>& file);
std::vector<NamedFile> reports_of(const runtime::Recipe& recipe);
std::vector<NamedFile> report_folders(const runtime::Recipe& recipe);
// A sentence for each file of data or prompts that is not there: a plan needs none of them, a run does.
std::vector<std::string> missing_inputs(const runtime::Recipe& recipe);

}  // namespace strata::launcher

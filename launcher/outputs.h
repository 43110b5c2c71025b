#pragma once
// launcher/ is the program: command_line/ has every command with its options, and commands/ a file or folder per
// command. rank/ is a process among ranks (rank/run_as_rank.h first), screen/ is the output for users, measure/ times
// this machine (measure/bench/bench.h), inspect/ looks into files (inspect/inspect.h), report/ makes pages, launch/
// starts runs on many nodes, and control/ watches and steers them. This header says which files a command may write,
// apart from its inputs, and what it may overwrite. Neither mathematics nor planning is done here.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// A file that a command reads or writes, with the key or option that names it.
struct NamedFile {
  std::string name;
  std::filesystem::path path;
};

// Throws Error{usage}, before anything is opened, if one of `outputs` is the same file as another output or one of
// `inputs`, under any name: writing it would destroy the other.
void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Throws Error{usage}, before anything is opened, if one of `outputs` (files or folders) is in checkpoint.dir at or
// below a name that a run itself writes or removes there: its lock, control.json, its checkpoints.
void require_outside_checkpoints(const std::vector<NamedFile>& outputs, const runtime::Recipe& recipe);

// The files that a run of this recipe reads, and its report files. Inputs include the model's files in model.path and
// the checkpoints' files in checkpoint.dir; patterns of data.* that match nothing are left to the code that opens them.
// report_folders: report.dir, report.tensorboard and a socket of control.listen, in which no existing file is
// overwritten.
std::vector<NamedFile> inputs_of(const runtime::Recipe& recipe, const std::optional<std::filesystem::path>& file);
std::vector<NamedFile> reports_of(const runtime::Recipe& recipe);
std::vector<NamedFile> report_folders(const runtime::Recipe& recipe);
// One sentence for each missing file of data or prompts, or checkpoint: a run needs them, a plan does not.
std::vector<std::string> missing_inputs(const runtime::Recipe& recipe);

// The kind of content that a command writes to a file, by which an earlier command's file is recognised.
enum class Content : std::uint8_t {
  plan,
  trace,
  evaluation,
  generation,
  bench,
  chart,
  steps,
  table,
  events,
  recipe,
  drawing,
  page,
  summary,
  machine,
  tokens,
  sidecar,
  documents,
  mask,
  types,
  labels,
  prediction
};

// Throws Error{usage} for a folder, and for a file in a folder that belongs to a checkpoint or does not exist, unless
// the command makes the folder.
void require_place(const NamedFile& output, bool makes_folder = false);

// A non-empty file may be overwritten only if it is known to have this content: anything else may be a recipe or a
// user's data, named by mistake. Throws Error{usage} in that case, before anything is written, unless `force`. Special
// files (a terminal, a pipe) are left to the code that opens them. Also throws what require_place() does.
void require_own(const NamedFile& output, Content content, bool force);

// The same for all reports of a run.
void require_own_reports(const runtime::Recipe& recipe, bool force);

}  // namespace strata::launcher

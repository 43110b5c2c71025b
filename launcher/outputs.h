#pragma once
// launcher/ is the program: command_line/ has every command with its options, and commands/ a file or folder for each
// command. rank/ makes a process one of several ranks (rank/run_as_rank.h first), screen/ is the output for users,
// measure/ times this machine (measure/bench/bench.h), inspect/ examines files (inspect/inspect.h), report/ makes
// pages, launch/ starts runs on many nodes, and control/ watches and steers them. This header says which files a
// command may write in addition to its inputs, and what it may overwrite. No mathematics or planning is done here.

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
// `inputs`, under any name, because writing it would destroy the other.
void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);

// Throws Error{usage}, before anything is opened, if one of `outputs` (files or folders) lies in checkpoint.dir at or
// below a name that a run itself writes or removes: its lock, control.json, its checkpoints.
void require_outside_checkpoints(const std::vector<NamedFile>& outputs, const runtime::Recipe& recipe);

// The files that a run of this recipe reads, and its report files. Inputs include the model's files in model.path and
// the checkpoints' files in checkpoint.dir; patterns of data.* that match nothing are left to the code that opens them.
// report_folders: report.dir, report.tensorboard and a socket of control.listen, in which no existing file is
// overwritten.
std::vector<NamedFile> inputs_of(const runtime::Recipe& recipe, const std::optional<std::filesystem::path>& file);
std::vector<NamedFile> reports_of(const runtime::Recipe& recipe);
std::vector<NamedFile> report_folders(const runtime::Recipe& recipe);
// One sentence for each missing file of data or prompts, and for a missing checkpoint. Only a run needs them.
std::vector<std::string> missing_inputs(const runtime::Recipe& recipe);

// The kind of content that a command writes to a file. It identifies the file of an earlier command.
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
// the command creates the folder.
void require_place(const NamedFile& output, bool makes_folder = false);

// Throws Error{usage}, before anything is written, if the output is a non-empty file that is not known to have this
// content: it may be a recipe or a user's data, named by mistake. With `force`, any file may be overwritten. Special
// files (a terminal, a pipe) are left to the code that opens them. Also throws what require_place() does.
void require_own(const NamedFile& output, Content content, bool force);

// Like require_own(), for all reports of a run.
void require_own_reports(const runtime::Recipe& recipe, bool force);

}  // namespace strata::launcher

#pragma once
#include <cstdint>

#include "launcher/outputs.h"

namespace strata::launcher {

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

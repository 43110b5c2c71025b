#pragma once
#include <cstdint>

#include "launcher/outputs.h"

namespace strata::launcher {

// What a command writes into a file, by which a file that it wrote before is known again.
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

// Throws Error{usage} for a folder, and for a file in a folder that is not there or is a checkpoint's.
void require_place(const NamedFile& output);

// A file that holds something is written over only if it is known to be of this content: anything else may be a recipe,
// or another's data, named by a slip. Throws Error{usage} for that, before anything is written, unless `force`. What is
// no regular file (a terminal, a pipe) is left to whoever opens it. Also throws what require_place() does.
void require_own(const NamedFile& output, Content content, bool force);

// The same for all reports of a run.
void require_own_reports(const runtime::Recipe& recipe, bool force);

}  // namespace strata::launcher

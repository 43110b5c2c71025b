#pragma once
#include <string>

#include "launcher/control/control.pb.h"
#include "launcher/control/watch/rank_view.h"
#include "runtime/execute/rank_progress.h"

namespace strata::launcher::control {

// The stack of every thread of this process: one line "TID FRAME" per frame, the innermost first. A signal interrupts
// each thread for some microseconds. Threads that block the signal (those of the control plane) or do not answer within
// a tenth of a second are left out.
std::string backtraces();

// The state of a rank on this machine: its progress, its threads as the kernel shows them (even if the process is
// stopped), and the text that backtraces() returned in that process.
pb::RankDump dump_of(int rank, const std::string& node, const runtime::RankProgress& progress, const TaskNames& names,
                     const std::string& backtraces);

// The ranks' answers as human-readable text.
std::string text_of(const pb::Dump& dump);

// Prepares the process for backtraces(). Call it before other threads may ask for one.
void prepare_backtraces();

}  // namespace strata::launcher::control

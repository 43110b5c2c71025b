#pragma once
#include <string>

#include "launcher/control/control.pb.h"
#include "launcher/control/watch/rank_view.h"
#include "runtime/execute/places.h"

namespace strata::launcher::control {

// Where every thread of this process is: a line "TID FRAME" for each frame, the innermost first. Interrupts each of
// them for some microseconds by a signal; threads that block it (those of the control plane) and that do not answer
// within a tenth of a second are left out.
std::string backtraces();

// What is to be told of a rank of this machine: its places, its threads as the kernel has them, also where it is
// stopped, and what backtraces() said in it.
pb::RankDump dump_of(int rank, const std::string& node, const runtime::RankPlaces& places, const TaskNames& names,
                     const std::string& backtraces);

// For people, what ranks told.
std::string text_of(const pb::Dump& dump);

// Makes the process ready for backtraces(): before other threads ask for one.
void prepare_backtraces();

}  // namespace strata::launcher::control

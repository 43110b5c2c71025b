#pragma once
#include "runtime/tasks/site.h"

namespace strata::runtime {

// The function that queues a task's work in its lane (runtime/tasks). Null for tasks of the host lane, which Border
// runs.
using RunTask = void (*)(Site& site, const Task& task, device::Lane& lane);
RunTask run_of(TaskKind kind);

}  // namespace strata::runtime

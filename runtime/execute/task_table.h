#pragma once
#include "runtime/tasks/site.h"

namespace strata::runtime {

// What carries out a kind of task: queues its work in the task's lane (runtime/tasks). Null for those of the lane host,
// which are the Border's.
using RunTask = void (*)(Site& site, const Task& task, device::Lane& lane);
RunTask run_of(TaskKind kind);

}  // namespace strata::runtime

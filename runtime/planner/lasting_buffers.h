#pragma once
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// Adds the buffers that live from step to step, except the units' state: the batch, scalars, counters, constants, the
// index of sequences, scores, and caches of keys and values. Returns each unit's cache; -1: it has none.
std::vector<int> add_lasting_buffers(Draft& draft);

}  // namespace strata::runtime

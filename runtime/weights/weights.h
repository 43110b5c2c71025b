#pragma once
// runtime/weights/ brings weights in: from random numbers, safetensors or a checkpoint (weight_source.h), into the
// executor's memory as placed (here); weights_hash.h is the hash that two runs are compared by.

#include <span>
#include <string>

#include "base/advance.h"
#include "comm/communicator.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// Elements [begin, begin + values.size()) of a unit's trained pool: into this rank's parameters, rounded to their
// dtype, and its fp32 master, as far as it holds them; or of its frozen pool, which has no master. Thread-safe for
// elements that do not overlap.
void store_weights(Executor& executor, const StepPlan& plan, std::size_t unit, PoolKind pool, std::size_t begin,
                   std::span<const float> values);

// Fills this rank's parameters and fp32 masters on `threads` threads, or what is frozen alone.
void load_weights(Executor& executor, const StepPlan& plan, const WeightSource& source, int threads,
                  const Advance& advance = {}, const LoadOptions& options = {});

// Collective: the same on all ranks, which are found to read from the same files: by what can be seen of them before,
// and if every rank reads all weights, by a hash of each tensor as it was read. Throws AgreedError naming a rank. Of a
// model with an adapter it returns the BaseHash, which is the source's if that has one.
std::string load_same_weights(Executor& executor, const models::Model& model, const StepPlan& plan,
                              const WeightSource& source, int threads, comm::World& world, const Advance& advance = {},
                              bool frozen_alone = false);

}  // namespace strata::runtime

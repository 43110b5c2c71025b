#pragma once
// runtime/weights/ loads weights: from random numbers, safetensors or a checkpoint (weight_source.h) into the
// executor's memory according to their placement, and computes the hash that compares two runs (this header). adapter/
// holds the weights of LoRA and DoRA.

#include <span>
#include <string>

#include "base/progress.h"
#include "comm/communicator.h"
#include "models/model.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/plan.h"
#include "runtime/weights/weight_source.h"

namespace strata::runtime {

// Stores elements [begin, begin + values.size()) of a unit's pool, as far as this rank holds them. Trained: into the
// parameters, rounded to their dtype, and the fp32 master. Frozen: into the parameters, because there is no master.
// Thread-safe for elements that do not overlap.
void store_weights(Executor& executor, const StepPlan& plan, std::size_t unit, PoolKind pool, std::size_t begin,
                   std::span<const float> values);

// Fills this rank's parameters and fp32 masters, or only the frozen parameters, on `threads` threads. Collective:
// verifies that all ranks read the same files: before reading by fingerprints of the files and, if every rank reads all
// weights, afterwards by a hash of each tensor as read. Throws AgreedError naming a rank. For a model with an adapter,
// returns the BaseHash, which must be the source's if the source has one.
std::string load_same_weights(Executor& executor, const models::Model& model, const StepPlan& plan,
                              const WeightSource& source, int threads, comm::World& world, const Advance& advance = {},
                              bool frozen_alone = false);

// Hash of the fp32 master weights in 32 hexadecimal digits: the sum, over blocks of kShardAlignment at fixed places of
// each unit, of XXH3-128 of their bytes seeded by the place. It does not depend on sharding. With an adapter it covers
// the trained weights in their own layout. Collective.
std::string weights_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});
// The same sum over the stored bytes of frozen weights, such as an adapter's base. Collective.
std::string base_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance = {});

}  // namespace strata::runtime

#include "runtime/execute/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/index.h"
#include "comm/host_work.h"
#include "runtime/plan/proof/proof.h"

namespace strata::runtime {
namespace {

using device::Lane;

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Proves the plan, with its peaks as capacity, because they are the arenas' sizes. Returns the time it took, in ms.
double prove(const StepPlan& plan) {
  const std::int64_t begin = now_ns();
  if (const auto violation = find_violation(plan, {plan.memory[0].peak, plan.memory[1].peak, plan.memory[2].peak}))
    invariant_failed(__FILE__, __LINE__, "the plan of the step is valid", *violation);
  return static_cast<double>(now_ns() - begin) * 1e-6;
}

}  // namespace

Executor::Executor(const StepPlan& plan, const models::Model& model, comm::World& world,
                   const device::Optimizer& optimizer, int threads, const offload::IoOptions& io)
    : plan_(plan),
      model_(model),
      validate_ms_(prove(plan)),
      rank_(world.rank()),
      abort_(world.abort_token()),
      storage_(plan, world, io),
      own_(std::make_unique<Queues>(plan, world, threads)),
      queues_(*own_) {
  prepare(optimizer);
}

Executor::Executor(const StepPlan& plan, const models::Model& model, Executor& other)
    : plan_(plan),
      model_(model),
      validate_ms_(prove(plan)),
      rank_(other.rank_),
      abort_(other.abort_),
      storage_(plan, other.storage_),
      queues_(other.queues_) {
  prepare({});
}

void Executor::prepare(const device::Optimizer& optimizer) {
  const StepPlan& plan = plan_;
  for (const Task& task : plan.tasks) names_.push_back(name_of(task, model_));
  std::vector<bool> by_hosts(plan.tasks.size());  // by task: a host lane waits for its event
  for (const Task& task : plan.tasks)
    for (const int wait : task.waits) {
      const Task& other = plan.tasks[index(wait)];
      if (waits_here(task, other) && on_gpu(other)) continue;
      awaited_[index(wait)] = true;
      if (on_host(task.lane)) by_hosts[index(wait)] = true;
    }
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    events_.emplace_back(plan.device, by_hosts[t] || on_host(plan.tasks[t].lane));
  context_.emplace(TaskContext{plan, model_, optimizer, plan.mesh().at(rank_), storage_, queues_.communicators()});
  context_->received.resize(plan.tasks.size());
  refill();
  if (is_gpu())
    for (const auto& unit : model_.units)
      if (std::string text = unit->set_up(queues_.of(LaneId::compute)); !text.empty()) attention_ = std::move(text);
  if (StepGraph::possible(plan) && queues_.gather->can_be_recorded() &&
      queues_.communicators().gradients.can_be_recorded())
    graph_.emplace(plan, queues_.lanes);
}

// Lanes are destroyed first: after an abort their work still refers to events, received pieces and communicators.
Executor::~Executor() {
  if (own_) own_->lanes.clear();
  for (const auto& lane : queues_.lanes) {
    try {
      if (lane) lane->synchronize();
    } catch (const Aborted&) {
      // The failure was reported when the token was set.
    }
  }
}

void Executor::refill() {
  if (plan_.control.constants >= 0) {
    std::vector<std::byte> constants(model_.constants_bytes);
    model_.write_constants(constants.data());
    storage_.write(plan_.control.constants, constants);
  }
  // Caches of keys and values start as zeros.
  std::vector<std::byte> zeros;
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (!buffer.filled || buffer.kind != Kind::activations) continue;
    zeros.resize(std::max(zeros.size(), buffer.bytes));
    storage_.write(static_cast<int>(b), std::span(zeros).first(buffer.bytes));
  }
}

device::StepResult Executor::step(const device::StepScalars& scalars, std::uint64_t requests) {
  boundary_.set(scalars, requests);
  timed_ = std::exchange(time_next_step_, false);
  abort_on_exception([&] {
    // Tasks that this step leaves out have no spans in it, but an earlier step's may still be writing theirs.
    if (plan_.cyclic && !has_pending_ && steps_ > 0) synchronize();
    if (!launch_graph()) issue_step();
    if (timed_) synchronize();
  });
  ++steps_;
  if (publisher_) publisher_->stepped();
  saver_ = nullptr;
  has_pending_ = plan_.cyclic && !skipped();
  return boundary_.state().result;
}

void Executor::issue_step() {
  const device::Range range(queues_.of(LaneId::compute), "step");
  collect(true);
  issue_due();
  steps_since_spans_ = 0;
}

bool Executor::due(const Task& task) const {
  switch (task.when) {
    case When::pending:
      return has_pending_;
    case When::checkpoint:
      return saver_ && !draining_;
    default:
      return !draining_;
  }
}

void Executor::issue_due() {
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    if (!draining_) meter_.issue(t);
    if (due(plan_.tasks[t]))
      issue(t);
    else if (!draining_)
      spans_[t] = {};  // clears the span of an earlier step
  }
}

void Executor::issue(std::size_t t) {
  const Task& task = plan_.tasks[t];
  if (task.lane == LaneId::host) {
    if (publisher_) publisher_->begin(t, steps_, now_ns());
    for (const int other : task.waits) wait(task, other);
    if (task.kind == TaskKind::host_write) collect(false);
    boundary_.run(task);
    if (publisher_) publisher_->end(t, steps_, now_ns());
    return;
  }
  Lane& lane = lane_of(task);
  const device::Range range(lane, names_[t].c_str());
  bool saved = false;
  for (const int other : task.waits)
    if (plan_.tasks[index(other)].lane == LaneId::checkpoint)
      saved = true;
    else
      wait(task, other);
  if (saved && !recording_) wait_for_saves(t);
  // A GPU lane returns its stamps only when it is waited for, so lanes that continue are stamped only in timed steps.
  const bool stamped = !recording_ && !draining_ && task.lane != LaneId::checkpoint &&
                       (timed_ || !is_gpu() || !boundaries_.continues[index(task.lane)]);
  mark(lane, t, stamped, true);
  run_of(task.kind)(*context_, task, lane);
  mark(lane, t, stamped, false);
  if (awaited_[t]) lane.record(events_[t]);
  issued_[t] = true;
}

// A GPU lane cannot write its progress itself, and host work in its order would delay it. So its tasks are reported
// when they are issued.
void Executor::mark(Lane& lane, std::size_t t, bool stamped, bool begins) {
  std::int64_t* const time = !stamped ? nullptr : begins ? &spans_[t].begin : &spans_[t].end;
  if (!publisher_ || recording_ || on_gpu(plan_.tasks[t])) {
    if (time) lane.stamp(time);
    if (publisher_ && !recording_ && begins) publisher_->issued(t, steps_, now_ns());
    return;
  }
  comm::host_work(lane, [publisher = &*publisher_, t, step = steps_, time, begins](device::cpu::Team&) {
    const std::int64_t now = now_ns();
    if (time) *time = now;
    begins ? publisher->begin(t, step, now) : publisher->end(t, step, now);
  });
}

// A stream must not wait for host work that calls CUDA, because the waiting stream might block that call
// (device/cuda/lane_impl.h). A checkpoint does so if it reads the GPU's memory. In the other direction, the tasks that
// a checkpoint waits for have ended when it begins. A wait here needs no signal to the host, which a graph could not
// contain.
bool Executor::waits_here(const Task& task, const Task& other) const {
  if (task.lane == LaneId::host || (task.lane == LaneId::checkpoint && on_gpu(other))) return true;
  if (other.lane != LaneId::checkpoint || !on_gpu(task)) return false;
  return std::any_of(other.uses.begin(), other.uses.end(),
                     [&](const Use& use) { return plan_.buffers[index(use.buffer)].tier == Tier::device; });
}

void Executor::wait(const Task& task, int other) {
  if (!issued_[index(other)]) return;
  if (waits_here(task, plan_.tasks[index(other)])) return wait_here(other);
  lane_of(task).wait(events_[index(other)]);
}

void Executor::wait_here(int other) {
  const Task& task = plan_.tasks[index(other)];
  if (on_gpu(task))
    lane_of(task).synchronize();
  else
    events_[index(other)].wait(abort_);
}

void Executor::wait_for_saves(std::size_t t) {
  const Task& task = plan_.tasks[t];
  Span* const time = held_.of_wait(t);
  bool here = false;
  if (time) lane_of(task).stamp(&time->begin);
  for (const int other : task.waits) {
    if (plan_.tasks[index(other)].lane != LaneId::checkpoint) continue;
    here = here || waits_here(task, plan_.tasks[index(other)]);
    wait(task, other);
  }
  if (!time) return;
  if (here)
    time->end = now_ns();
  else
    lane_of(task).stamp(&time->end);
}

// A GPU lane returns its times and flags only when it is waited for. That is done between two steps, except for lanes
// that continue.
void Executor::collect(bool early) {
  if (!is_gpu()) return;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    if (queues_.lanes[lane] && !on_host(static_cast<LaneId>(lane)) && !boundaries_.continues[lane] &&
        boundaries_.begins_early[lane] == early)
      queues_.lanes[lane]->synchronize();
}

// The first step is issued task by task because libraries initialise themselves on first use. So is a step that
// overlaps with a checkpoint, because the graph has neither the checkpoint's reads nor the waits for them.
bool Executor::launch_graph() {
  if (!graph_ || !graph_->refusal().empty() || steps_ == 0 || timed_ || saver_) return false;
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    if (plan_.tasks[t].lane == LaneId::checkpoint && issued_[t] && !events_[t].passed()) return false;
  synchronize();
  if (!graph_->recorded() && !record_graph()) return false;
  std::size_t t = 0;
  const auto run_host = [&] {
    for (; t < plan_.tasks.size() && !on_gpu(plan_.tasks[t]); ++t)
      if (plan_.tasks[t].lane == LaneId::host) {
        if (publisher_) publisher_->begin(t, steps_, now_ns());
        boundary_.run(plan_.tasks[t]);
        if (publisher_) publisher_->end(t, steps_, now_ns());
      }
  };
  run_host();
  Lane& first = queues_.of(LaneId::compute);
  const device::Range range(first, "step (graph)");
  graph_->launch();
  first.synchronize();
  while (t < plan_.tasks.size() && on_gpu(plan_.tasks[t])) ++t;
  run_host();
  context_->moved += moved_by_graph_;
  ++graph_steps_;
  ++steps_since_spans_;
  return true;
}

// Recording runs nothing, so the bytes it counts are kept for launches and not added to io_bytes().
bool Executor::record_graph() {
  const IoBytes moved = std::exchange(context_->moved, {});
  forget_events();
  recording_ = true;
  const bool done = graph_->record([this] {
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
      if (on_gpu(plan_.tasks[t])) issue(t);
  });
  recording_ = false;
  forget_events();
  moved_by_graph_ = std::exchange(context_->moved, moved);
  return done;
}

void Executor::forget_events() {
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
    if (on_gpu(plan_.tasks[t])) issued_[t] = false;
}

std::span<const float> Executor::generate(std::size_t first, std::size_t rows) {
  STRATA_CHECK_LE(rows, plan_.tokens);
  context_->generation = {first, rows};
  (void)step({}, 0);
  return boundary_.logits();
}

std::span<const float> Executor::scores() const {
  return boundary_.scores();
}

std::span<const std::byte> Executor::gather_chunks() {
  std::span<const std::byte> all;
  abort_on_exception([&] { all = chunks_.all(); });
  return all;
}

void Executor::use_algorithms(std::shared_ptr<const device::AlgorithmTable> table) {
  algorithms_ = std::move(table);
  if (algorithms_) device::use_algorithms(queues_.of(LaneId::compute), algorithms_);
  if (graph_) graph_->reset();  // it was recorded with other algorithms
}

void Executor::drain() {
  abort_on_exception([&] {
    synchronize();
    if (!has_pending_) return;
    draining_ = true;  // spans() must remain the spans of a step
    issue_due();
    draining_ = false;
    synchronize();
  });
  has_pending_ = false;
  held_.add_up();
}

void Executor::save_during_next_step(Saver& saver) {
  saver_ = &saver;
  context_->saver = &saver;
  held_.begin();
}

void Executor::finish_saving() {
  abort_on_exception([&] {
    if (std::exchange(saver_, nullptr))
      for (std::size_t t = 0; t < plan_.tasks.size(); ++t)
        if (plan_.tasks[t].when == When::checkpoint) issue(t);
    checkpoint_lane().synchronize();
  });
}

void Executor::forget(const Saver& saver) noexcept {
  if (saver_ == &saver) saver_ = nullptr;
  try {
    checkpoint_lane().synchronize();
  } catch (const Aborted&) {
    // The failure was reported when the token was set.
  }
}

template <typename F>
void Executor::abort_on_exception(const F& f) {
  try {
    f();
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    abort_.set({rank_, error.what(), exit_code(error)});
    throw;
  }
}

}  // namespace strata::runtime

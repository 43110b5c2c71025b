#include "runtime/execute/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace strata::runtime {
namespace {

using device::DType;
using device::Lane;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}
std::size_t index(LaneId lane) {
  return static_cast<std::size_t>(lane);
}

bool has_host_lanes(const StepPlan& plan) {
  return std::any_of(plan.tasks.begin(), plan.tasks.end(), [](const Task& task) { return on_host(task.lane); });
}

// By task: whether a lane of the host waits for it.
std::vector<bool> awaited_by_hosts(const StepPlan& plan) {
  std::vector<bool> awaited(plan.tasks.size());
  for (const Task& task : plan.tasks) {
    if (!on_host(task.lane)) continue;
    for (const int wait : task.waits) awaited[index(wait)] = true;
    if (task.late_wait >= 0) awaited[index(task.late_wait)] = true;
  }
  return awaited;
}

}  // namespace

Executor::Executor(const StepPlan& plan, const models::Model& model, comm::World& world,
                   const device::Optimizer& optimizer, int threads, const offload::IoOptions& io)
    : plan_(plan),
      model_(model),
      rank_(world.rank()),
      abort_(world.abort_token()),
      fault_watch_(plan.device, rank_, abort_),
      storage_(plan, world, io),
      buffers_(plan),
      awaited_(plan.tasks.size()),
      spans_(plan.tasks.size()),
      held_(model.units.size()),
      meter_(plan),
      sent_(plan.device, has_host_lanes(plan)) {
  for (const Task& task : plan.tasks) names_.push_back(name_of(task, model));
  for (const bool host_waits : awaited_by_hosts(plan)) events_.emplace_back(plan.device, host_waits);
  for (std::size_t lane = 0; lane < kLanes; ++lane) ended_.emplace_back(plan.device, false);
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) state_read_.emplace_back(plan.device);
  std::array<bool, kLanes> used{};
  for (const LaneId lane : {LaneId::compute, LaneId::gather, LaneId::reduce}) used[index(lane)] = true;
  for (const Task& task : plan.tasks) used[index(task.lane)] = true;
  lanes_.resize(kLanes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const bool computes = lane == index(LaneId::compute) || lane == index(LaneId::host_compute);
    if (used[lane])
      lanes_[lane] =
          std::make_unique<Lane>(std::string(kLaneNames[lane]), computes ? threads : 1, rank_, world.abort_token(),
                                 on_host(static_cast<LaneId>(lane)) ? device::Device{} : plan.device);
  }
  gather_ = world.open(*lanes_[index(LaneId::gather)]);
  reduce_ = world.open(*lanes_[index(LaneId::reduce)]);

  for (const Task& task : plan.tasks) {
    for (const int wait : task.waits) awaited_[index(wait)] = true;
    if (task.late_wait >= 0) awaited_[index(task.late_wait)] = true;
    if (task.late) late_lane_ = lanes_[index(task.lane)].get();
  }
  tasks_ = std::make_unique<TaskRunner>(plan, model, optimizer, rank_, storage_, lanes_, *gather_, *reduce_);
  if (buffers_.constants >= 0) {
    std::vector<std::byte> constants(model.constants_bytes);
    model.fill_constants(constants.data());
    storage_.write(buffers_.constants, constants);
  }
  if (plan.device.kind != device::Kind::cpu)
    for (const auto& unit : model.units)
      if (std::string text = unit->set_up(*lanes_[index(LaneId::compute)]); !text.empty()) attention_ = std::move(text);
  const auto mirror = [&](int buffer) {
    if (buffer < 0) return device::Mirror();
    device::View host;
    for (const auto& mirrored : plan.mirrored)
      if (mirrored.device == buffer) host = storage_.view(mirrored.host, DType::fp32);
    return device::Mirror(storage_.view(buffer, DType::fp32), host);
  };
  mirrors_ = {mirror(buffers_.batch), mirror(buffers_.state), mirror(buffers_.losses), mirror(buffers_.squares),
              mirror(buffers_.logits)};
  graph_possible_ = can_be_graph();
}

// Lanes first: after an abort their work still refers to events, pieces and communicators.
Executor::~Executor() {
  lanes_.clear();
}

Executor::BatchSpans Executor::batch(int micro_batch) {
  const std::size_t all = plan_.buffers[index(buffers_.batch)].bytes / sizeof(std::uint32_t);
  const std::size_t tokens = plan_.tokens;
  STRATA_CHECK_LE((index(micro_batch) + 1) * 3 * tokens, all);
  auto* base = host<std::uint32_t>(mirrors_.batch) + index(micro_batch) * 3 * tokens;
  return {{base, tokens}, {reinterpret_cast<std::int32_t*>(base + tokens), tokens}, {base + 2 * tokens, tokens}};
}

device::StepResult Executor::step(const device::StepScalars& scalars, bool stop_requested) {
  auto* state = host<StepState>(mirrors_.state);
  if (has_pending_) *at<device::StepScalars>(buffers_.pending) = state->scalars;
  *state = StepState{};
  state->scalars = scalars;
  state->stop_requested = stop_requested ? 1 : 0;
  std::memset(host<std::byte>(mirrors_.losses), 0, LossState::bytes(model_.units.size()));
  if (buffers_.squares >= 0) *host<SquareState>(mirrors_.squares) = SquareState{};
  timed_ = std::exchange(time_next_step_, false);
  or_abort([&] {
    if (!launch_graph()) issue_step();
    for (const auto& lane : lanes_)
      if (lane && (timed_ || lane.get() != late_lane_)) lane->synchronize();
  });
  ++steps_;
  for (Span& held : held_) {
    if (held.begin != 0) held_ms_ += static_cast<double>(std::max<std::int64_t>(0, held.end - held.begin)) * 1e-6;
    held = {};
  }
  has_pending_ = plan_.cyclic && state->scalars.skip == 0;
  return state->result;
}

void Executor::issue_step() {
  const device::Range range(*lanes_[index(LaneId::compute)], "step");
  send_mirrors();
  for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
    meter_.issue(t);
    issue(t, has_pending_ || !plan_.tasks[t].pending);
  }
  fetch_mirrors();
  steps_since_spans_ = 0;
}

// Host lanes and staged collectives are the host's work, a pending update is left out of some steps, late tasks are
// not over at the end, and a generation goes on where the last call ended.
bool Executor::can_be_graph() const {
  return !has_host_lanes(plan_) && device::Graph::possible(plan_.device) && gather_->can_be_recorded() &&
         reduce_->can_be_recorded() && !plan_.cyclic && !late_lane_ && buffers_.logits < 0;
}

// The first step is issued task by task, in which libraries set up what they do when first used, and so is one that
// meets a checkpoint: the updates' waits for its reads are no part of the graph.
bool Executor::launch_graph() {
  if (!graph_possible_ || steps_ == 0 || timed_) return false;
  if (!std::all_of(state_read_.begin(), state_read_.end(), [](const auto& event) { return event.passed(); }))
    return false;
  if (!graph_) record_graph();
  if (!graph_) return false;
  Lane& first = *lanes_[index(LaneId::compute)];
  const device::Range range(first, "step (graph)");
  graph_->launch(first);
  tasks_->moved() += moved_by_graph_;
  ++graph_steps_;
  ++steps_since_spans_;
  return true;
}

// Tried once. Nothing of it runs, so nothing of it is counted.
void Executor::record_graph() {
  const IoBytes moved = std::exchange(tasks_->moved(), {});
  recording_ = true;
  try {
    graph_.emplace(*lanes_[index(LaneId::compute)], [this] {
      send_mirrors();
      for (std::size_t t = 0; t < plan_.tasks.size(); ++t) issue(t, true);
      fetch_mirrors();
    });
  } catch (const Error& refusal) {
    graph_possible_ = false;
    graph_refusal_ = refusal.what();
  }
  recording_ = false;
  moved_by_graph_ = std::exchange(tasks_->moved(), moved);
}

std::span<const float> Executor::generate(std::size_t first, std::size_t rows) {
  STRATA_CHECK_LE(rows, plan_.tokens);
  tasks_->generate(first, rows);
  (void)step({}, false);
  return {host<float>(mirrors_.logits), model_.vocabulary};
}

void Executor::use_algorithms(std::shared_ptr<const device::AlgorithmTable> table) {
  algorithms_ = std::move(table);
  if (algorithms_) device::use_algorithms(*lanes_[index(LaneId::compute)], algorithms_);
  graph_.reset();  // recorded with others
}

void Executor::drain() {
  synchronize();
  if (!has_pending_) return;
  *at<device::StepScalars>(buffers_.pending) = host<StepState>(mirrors_.state)->scalars;
  or_abort([&] {
    draining_ = true;  // the spans stay those of a step
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) issue(t, plan_.tasks[t].pending);
    draining_ = false;
    synchronize();
  });
  has_pending_ = false;
}

void Executor::send_mirrors() {
  if (plan_.device.kind == device::Kind::cpu) return;
  Lane& first = *lanes_[index(LaneId::compute)];
  for (const device::Mirror* mirror : {&mirrors_.batch, &mirrors_.state, &mirrors_.losses, &mirrors_.squares})
    mirror->to_device(first);
  first.record(sent_);
  for (const auto& lane : lanes_)
    if (lane && lane.get() != &first) lane->wait(sent_);
}

void Executor::fetch_mirrors() {
  if (plan_.device.kind == device::Kind::cpu) return;
  Lane& first = *lanes_[index(LaneId::compute)];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (!lanes_[lane] || lanes_[lane].get() == &first || lanes_[lane].get() == late_lane_) continue;
    lanes_[lane]->record(ended_[lane]);
    first.wait(ended_[lane]);
  }
  for (const device::Mirror* mirror : {&mirrors_.state, &mirrors_.losses, &mirrors_.logits}) mirror->to_host(first);
}

void Executor::synchronize() {
  for (const auto& lane : lanes_)
    if (lane) lane->synchronize();
}

// State that lies on a GPU is copied from there, by CUDA: what waited for it in a lane might hold that up (see
// device/cuda/event.h), so this thread waits. What that costs begins when the lane would have begun to wait.
template <typename Stamp>
void Executor::wait_for_reader(Lane& lane, std::size_t unit, const Stamp& stamp) {
  const device::Event& read = state_read_[unit];
  Span& held = held_[unit];
  stamp(held.begin);
  if (plan_.device.kind == device::Kind::cpu || !storage_.has_state_on_device(unit)) {
    lane.wait(read);
    stamp(held.end);
    return;
  }
  for (; !read.passed(); std::this_thread::sleep_for(std::chrono::microseconds(20))) abort_.throw_if_set();
  held.end = std::chrono::steady_clock::now().time_since_epoch().count();
}

template <typename F>
void Executor::or_abort(const F& f) {
  try {
    f();
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    abort_.set({rank_, error.what(), exit_code(error)});
    throw;
  }
}

// A task that is left out still waits and is waited for: others rely on what follows from it.
void Executor::issue(std::size_t t, bool runs) {
  const Task& task = plan_.tasks[t];
  Lane& lane = *lanes_[index(task.lane)];
  if (!recording_ && !draining_) spans_[t] = {};  // of an earlier step, where this one leaves the task out
  // Of the step before: not recorded again yet.
  if (task.late_wait >= 0) lane.wait(events_[index(task.late_wait)]);
  for (const int wait : task.waits) lane.wait(events_[index(wait)]);
  if (runs) {
    const device::Range range(lane, names_[t].c_str());
    // A GPU's lane keeps its stamps until it is synchronized, which the late lane is only then.
    const bool stamped = !recording_ && !draining_ && (!task.late || timed_);
    const auto stamp = [&](std::int64_t& where) {
      if (stamped) lane.stamp(&where);
    };
    if (!recording_ && task.kind == TaskKind::update && task.begin == 0) wait_for_reader(lane, index(task.unit), stamp);
    stamp(spans_[t].begin);
    tasks_->run(task, t);
    stamp(spans_[t].end);
  }
  if (awaited_[t]) lane.record(events_[t]);
}

int Executor::first_nonfinite_unit() const {
  const std::uint64_t* counts = host<LossState>(mirrors_.losses)->nonfinite();
  for (std::size_t unit = 0; unit < model_.units.size(); ++unit)
    if (counts[unit]) return static_cast<int>(unit);
  return -1;
}

const device::ExactSum& Executor::loss_sum() const {
  return host<LossState>(mirrors_.losses)->loss;
}

bool Executor::skipped() const {
  return host<StepState>(mirrors_.state)->scalars.skip != 0;
}

comm::CommBytes Executor::comm_bytes() const {
  comm::CommBytes sum = gather_->sent();
  const comm::CommBytes other = reduce_->sent();
  sum.all_gather += other.all_gather;
  sum.all_to_all += other.all_to_all;
  sum.broadcast += other.broadcast;
  sum.consensus += other.consensus;
  return sum;
}

}  // namespace strata::runtime

#include "runtime/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "device/error.h"
#include "device/memory.h"
#include "runtime/step_state.h"

namespace strata::runtime {
namespace {

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + device::kBufferAlignment - 1) / device::kBufferAlignment * device::kBufferAlignment;
}

struct Call {
  TaskKind kind;
  int unit, micro_batch;
  bool wants_output = true;  // recompute: whether the next unit of the segment needs y
};

// Consecutive work on one unit, for which its parameters are gathered once.
struct Visit {
  int unit;
  bool needs_parameters;
  std::vector<Call> calls;
};

// Builds the task list in issue order. Waits and offsets come later, from the uses recorded here.
class Builder {
 public:
  explicit Builder(const PlanRequest& request)
      : r_(request),
        model_(*request.model),
        units_(static_cast<int>(model_.units.size())),
        element_(size_of(request.shape.dtype)),
        activation_(request.shape.tokens() * model_.hidden * element_) {
    plan_.ranks = r_.ranks;
    plan_.accumulation = r_.accumulation;
    plan_.tokens = r_.shape.tokens();
    plan_.dtype = r_.shape.dtype;
    plan_.fast = r_.fast && r_.accumulation > 1 && r_.ranks > 1;  // else nothing is left to do locally
    plan_.vertical = r_.vertical;
    plan_.placement = r_.placement;
    plan_.layout = make_layout(model_, r_.ranks);
  }

  StepPlan build() {
    add_state();
    const std::vector<Visit> visits = make_visits();
    find_gathers(visits);
    for (std::size_t v = 0; v < visits.size(); ++v) {
      for (const int unit : gathers_before_[v]) gather(unit);
      for (const Call& call : visits[v].calls) {
        run(call);
        reduce_pending();  // behind the next call's issue, so that backward runs on while gradients travel
        std::swap(pending_, produced_);
      }
      for (const int unit : releases_after_[v]) gathered_[at(unit)] = -1;
    }
    reduce_pending();
    finish_gradients();
    consensus();
    for (int unit = 0; unit < units_; ++unit) update(unit);
    return std::move(plan_);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  bool single() const { return r_.ranks == 1; }
  bool fp32() const { return r_.shape.dtype == device::DType::fp32; }
  const UnitLayout& layout(int unit) const { return plan_.layout.units[at(unit)]; }
  std::size_t sum_elements(int unit) const { return plan_.part_size(at(unit)); }
  bool tied() const { return plan_.layout.tied > 0; }
  int head() const { return units_ - 1; }

  int add_buffer(std::string name, Kind kind, std::size_t bytes, bool whole_cycle) {
    const Tier tier = kind == Kind::parameters    ? r_.placement.parameters.tier
                      : kind == Kind::gradients   ? r_.placement.gradients.tier
                      : kind == Kind::optimizer   ? r_.placement.optimizer.tier
                      : kind == Kind::activations ? r_.placement.activations
                                                  : Tier::device;
    plan_.buffers.push_back({std::move(name), kind, tier, aligned(bytes), whole_cycle});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }

  Task& add_task(TaskKind kind, LaneId lane, int unit, int micro_batch) {
    Task& task = plan_.tasks.emplace_back();
    task.kind = kind;
    task.lane = lane;
    task.unit = unit;
    task.micro_batch = micro_batch;
    return task;
  }
  static void use(Task& task, int buffer, Role role, Access access) {
    STRATA_CHECK(buffer >= 0);
    task.uses.push_back({buffer, role, access});
  }

  // What lives from step to step.
  void add_state() {
    batch_ = add_buffer("batch", Kind::activations, at(r_.accumulation) * r_.shape.tokens() * 3 * 4, true);
    state_ = add_buffer("state", Kind::workspace, sizeof(StepState), true);
    losses_ = add_buffer("losses", Kind::workspace, LossState::bytes(model_.units.size()), true);
    squares_ = add_buffer("squares", Kind::workspace, sizeof(SquareState), true);
    if (model_.constants_bytes) constants_ = add_buffer("constants", Kind::workspace, model_.constants_bytes, true);
    for (int unit = 0; unit < units_; ++unit) {
      const std::string& name = model_.units[at(unit)]->name();
      const UnitLayout& u = layout(unit);
      const std::size_t part = plan_.part_size(at(unit));
      State& s = states_.emplace_back();
      if (plan_.sharded_parameters())
        s.shard = add_buffer("shard of " + name, Kind::parameters, u.shard * element_, true);
      else
        s.parameters = add_buffer("parameters of " + name, Kind::parameters, u.padded * element_, true);
      if (!fp32()) s.master = add_buffer("master of " + name, Kind::optimizer, part * 4, true);
      s.moment1 = add_buffer("moment 1 of " + name, Kind::optimizer, part * 4, true);
      s.moment2 = add_buffer("moment 2 of " + name, Kind::optimizer, part * 4, true);
      // ZeRO-1 holds the whole gradient; a rank alone has nothing to share.
      if (plan_.sharded_optimizer() && !r_.placement.gradients.sharded)
        s.gradients = add_buffer("gradients of " + name, Kind::gradients, u.padded * element_, true);
    }
    gathered_.assign(at(units_), -1);
    gradients_.assign(at(units_), -1);
    local_sums_.assign(at(units_), -1);
    sums_.assign(at(units_), -1);
    residual_.assign(at(r_.accumulation), -1);
    inputs_.assign(at(units_ * r_.accumulation), -1);
    saved_.assign(at(units_ * r_.accumulation), -1);
  }

  // The step's visits: per micro-batch (horizontal), or every micro-batch at each unit (vertical).
  std::vector<Visit> make_visits() const {
    std::vector<Visit> visits;
    std::vector<int> all(at(r_.accumulation));
    for (int g = 0; g < r_.accumulation; ++g) all[at(g)] = g;
    if (r_.vertical) {
      add_visits(visits, all);
    } else {
      for (const int g : all) add_visits(visits, {&g, 1});
    }
    return visits;
  }

  void add_visits(std::vector<Visit>& visits, std::span<const int> micro_batches) const {
    const auto visit = [&](int unit, bool needs_parameters, auto&& calls_of) {
      Visit& v = visits.emplace_back(Visit{unit, needs_parameters, {}});
      for (const int g : micro_batches) calls_of(v.calls, g);
    };
    for (int unit = 0; unit < head(); ++unit)
      visit(unit, true, [&](auto& calls, int g) { calls.push_back({TaskKind::forward, unit, g}); });
    visit(head(), true, [&](auto& calls, int g) { calls.push_back({TaskKind::loss, head(), g}); });
    for (auto segment = r_.segments.rbegin(); segment != r_.segments.rend(); ++segment) {
      if (segment->recompute)
        for (int unit = segment->first; unit < segment->last; ++unit)
          visit(unit, true, [&](auto& calls, int g) { calls.push_back({TaskKind::recompute, unit, g}); });
      for (int unit = segment->last; unit >= segment->first; --unit)
        visit(unit, true, [&](auto& calls, int g) {
          if (segment->recompute && unit == segment->last) calls.push_back({TaskKind::recompute, unit, g, false});
          calls.push_back({TaskKind::backward, unit, g});
        });
    }
    visit(0, false, [&](auto& calls, int g) { calls.push_back({TaskKind::backward, 0, g}); });
  }

  // Which gathers are issued before each visit and which gathered units end after it: a unit is held as long as it is
  // needed within the next `prefetch` visits, so that at most prefetch + 1 are. A tied embedding is held throughout.
  void find_gathers(const std::vector<Visit>& visits) {
    const int n = static_cast<int>(visits.size());
    gathers_before_.resize(visits.size());
    releases_after_.resize(visits.size());
    if (!plan_.sharded_parameters()) return;
    std::vector<std::vector<int>> needs(model_.units.size());
    for (int v = 0; v < n; ++v) {
      if (visits[at(v)].needs_parameters) needs[at(visits[at(v)].unit)].push_back(v);
      if (tied() && visits[at(v)].unit == head()) needs[0].push_back(v);
    }
    for (int unit = 0; unit < units_; ++unit) {
      const auto& when = needs[at(unit)];
      for (std::size_t i = 0; i < when.size(); ++i) {
        const bool held = i > 0 && ((tied() && unit == 0) || when[i] - r_.prefetch <= when[i - 1] + 1);
        if (!held) gathers_before_[at(std::max(0, when[i] - r_.prefetch))].push_back(unit);
        const bool holds = i + 1 < when.size() && ((tied() && unit == 0) || when[i + 1] - r_.prefetch <= when[i] + 1);
        if (!holds) releases_after_[at(when[i])].push_back(unit);
      }
    }
    // Gathers run in order in their lane: what is needed first goes first.
    for (int v = 0; v < n; ++v)
      std::stable_sort(gathers_before_[at(v)].begin(), gathers_before_[at(v)].end(), [&](int a, int b) {
        const auto next = [&](int unit) {
          const auto& when = needs[at(unit)];
          return *std::lower_bound(when.begin(), when.end(), v);
        };
        return next(a) < next(b);
      });
  }

  void gather(int unit) {
    const std::size_t bytes = layout(unit).padded * element_;
    const int buffer = add_buffer("gathered " + model_.units[at(unit)]->name(), Kind::parameters, bytes, false);
    Task& task = add_task(TaskKind::gather, LaneId::gather, unit, -1);
    use(task, states_[at(unit)].shard, Role::shard, Access::read);
    use(task, buffer, Role::parameters, Access::write);
    count_all_gather(task, layout(unit).shard * element_);
    gathered_[at(unit)] = buffer;
  }

  int parameters_of(int unit) const {
    return plan_.sharded_parameters() ? gathered_[at(unit)] : states_[at(unit)].parameters;
  }
  int& input_of(int unit, int g) { return inputs_[at(g * units_ + unit)]; }
  int& saved_of(int unit, int g) { return saved_[at(g * units_ + unit)]; }

  void run(const Call& call) {
    // A gradient buffer that lives from step to step is emptied before the next micro-batch writes it.
    const bool writes_gradients = call.kind == TaskKind::loss || call.kind == TaskKind::backward;
    if (writes_gradients && states_[at(call.unit)].gradients >= 0) reduce_pending();
    switch (call.kind) {
      case TaskKind::forward:
        return forward(call, !recomputed(call.unit));
      case TaskKind::recompute:
        return forward(call, true);
      case TaskKind::loss:
        return loss(call);
      default:
        return backward(call);
    }
  }
  bool recomputed(int unit) const {
    for (const Segment& s : r_.segments)
      if (unit >= s.first && unit <= s.last) return s.recompute;
    return false;
  }

  void use_common(Task& task, const Call& call, std::size_t workspace) {
    const models::Unit& unit = *model_.units[at(call.unit)];
    if (!(call.kind == TaskKind::backward && call.unit == 0))
      use(task, parameters_of(call.unit), Role::parameters, Access::read);
    use(task, batch_, Role::batch, Access::read);
    use(task, state_, Role::state, Access::read);
    if (constants_ >= 0) use(task, constants_, Role::constants, Access::read);
    if (workspace)
      use(task, add_buffer("workspace of " + unit.name(), Kind::workspace, workspace, false), Role::workspace,
          Access::write);
  }

  void forward(const Call& call, bool keep) {
    const models::Unit& unit = *model_.units[at(call.unit)];
    const models::UnitBytes bytes = unit.bytes();
    Task& task = add_task(call.kind, LaneId::compute, call.unit, call.micro_batch);
    use_common(task, call, bytes.forward_workspace);
    if (call.unit > 0) use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (bytes.saved) {
      const int saved = add_buffer("saved by " + unit.name(), Kind::activations, bytes.saved, false);
      use(task, saved, Role::saved, Access::write);
      saved_of(call.unit, call.micro_batch) = keep ? saved : -1;
    }
    if (call.wants_output) {
      const int y = add_buffer("output of " + unit.name(), Kind::activations, activation_, false);
      use(task, y, Role::y, Access::write);
      input_of(call.unit + 1, call.micro_batch) = y;
    }
    use(task, losses_, Role::losses, Access::update);
    task.cost.flops = product_flops(call.unit);
    task.cost.bytes = static_cast<double>(bytes.saved + 2 * activation_);
  }

  // 2 x tokens for each element of a matrix.
  double product_flops(int unit) const {
    double elements = unit == head() ? static_cast<double>(model_.vocabulary * model_.hidden) : 0;
    if (unit > 0 && unit < head())
      for (const models::Parameter& p : model_.units[at(unit)]->parameters())
        if (p.shape.size() == 2) elements += static_cast<double>(p.size());
    return 2 * static_cast<double>(r_.shape.tokens()) * elements;
  }

  int new_gradients(int unit) {
    if (states_[at(unit)].gradients >= 0) return states_[at(unit)].gradients;
    return add_buffer("gradients of " + model_.units[at(unit)]->name(), Kind::gradients, layout(unit).padded * element_,
                      false);
  }

  void loss(const Call& call) {
    Task& task = add_task(TaskKind::loss, LaneId::compute, call.unit, call.micro_batch);
    use_common(task, call, model_.head().loss_workspace());
    if (tied()) use(task, parameters_of(0), Role::tied, Access::read);
    use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    use(task, losses_, Role::losses, Access::update);
    int& residual = residual_[at(call.micro_batch)];
    residual = add_buffer("gradient of the residual stream", Kind::activations, activation_, false);
    use(task, residual, Role::residual, Access::write);
    gradients_[at(call.unit)] = new_gradients(call.unit);
    use(task, gradients_[at(call.unit)], Role::gradients, Access::write);
    produced_.push_back({call.unit, call.micro_batch, gradients_[at(call.unit)], false});
    if (tied()) {
      tied_gradients_ = add_buffer("gradients of the tied head", Kind::gradients, plan_.layout.tied * element_, false);
      use(task, tied_gradients_, Role::tied_gradients, Access::write);
      produced_.push_back({call.unit, call.micro_batch, tied_gradients_, true});
    }
    task.cost.flops = 3 * product_flops(call.unit);
    task.cost.bytes = 4 * static_cast<double>(r_.shape.tokens() * model_.vocabulary) * 3;
  }

  void backward(const Call& call) {
    const models::UnitBytes bytes = model_.units[at(call.unit)]->bytes();
    Task& task = add_task(TaskKind::backward, LaneId::compute, call.unit, call.micro_batch);
    use_common(task, call, bytes.backward_workspace);
    if (call.unit > 0) use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (bytes.saved) use(task, saved_of(call.unit, call.micro_batch), Role::saved, Access::read);
    use(task, residual_[at(call.micro_batch)], Role::residual, Access::update);
    gradients_[at(call.unit)] = new_gradients(call.unit);
    use(task, gradients_[at(call.unit)], Role::gradients, Access::write);
    produced_.push_back({call.unit, call.micro_batch, gradients_[at(call.unit)], false});
    task.cost.flops = 2 * product_flops(call.unit);
    task.cost.bytes = static_cast<double>(2 * bytes.saved + layout(call.unit).padded * element_);
  }

  struct Produced {
    int unit, micro_batch, gradients;
    bool tied;
  };

  void reduce_pending() {
    if (plan_.has_sums())
      for (const Produced& p : pending_) reduce(p);
    pending_.clear();
  }

  void reduce(const Produced& p) {
    const Role role = p.tied ? Role::tied_gradients : Role::gradients;
    const std::string& name = model_.units[at(p.unit)]->name();
    const std::size_t elements = p.tied ? plan_.layout.tied : layout(p.unit).padded;
    const auto mark = [&](Task& task) {
      task.tied = p.tied;
      task.cost.bytes = static_cast<double>(elements * (element_ + 8));
    };
    if (plan_.fast) {
      int& local = p.tied ? tied_local_sum_ : local_sums_[at(p.unit)];
      const bool starts = local < 0, last = p.micro_batch == r_.accumulation - 1;
      if (starts) local = add_buffer("local sum of " + name, Kind::gradients, elements * 4, false);
      Task& add = add_task(TaskKind::accumulate, LaneId::reduce, p.unit, p.micro_batch);
      mark(add);
      add.first = starts;
      use(add, p.gradients, role, Access::read);
      use(add, local, Role::local_sum, starts ? Access::write : Access::update);
      if (!last) return;
      Task& round = add_task(TaskKind::round, LaneId::reduce, p.unit, -1);
      mark(round);
      use(round, local, Role::local_sum, Access::read);
      use(round, p.gradients, role, Access::write);
    }
    int& sum = p.tied ? tied_sum_ : sums_[at(p.unit)];
    const bool starts = sum < 0;
    if (starts)
      sum = add_buffer("sum of " + name, Kind::gradients, (p.tied ? tied_part() : sum_elements(p.unit)) * 4, false);
    Task& task = add_task(TaskKind::reduce, LaneId::reduce, p.unit, p.micro_batch);
    mark(task);
    task.first = starts;
    use(task, p.gradients, role, Access::read);
    if (!single()) {
      use(task, add_buffer("staging of " + name, Kind::staging, elements * element_, false), Role::staging,
          Access::write);
      const std::size_t sent =
          elements * element_ - (p.tied ? tied_piece(0) * element_ : layout(p.unit).shard * element_);
      plan_.comm_bytes.all_to_all += sent;
      task.cost.sent_bytes = static_cast<double>(sent);
    }
    use(task, sum, p.tied ? Role::tied_sum : Role::sum, starts ? Access::write : Access::update);
  }

  // Rank 0's piece of the tied range is the largest: every rank's buffers have its size.
  std::size_t tied_part() const { return tied_piece(0); }
  std::size_t tied_piece(int rank) const {
    return comm::ShardedRange{layout(0).shard, 0, plan_.layout.tied}.piece(rank).bytes();
  }

  void count_all_gather(Task& task, std::size_t piece_bytes) {
    const std::size_t sent = piece_bytes * at(r_.ranks - 1);
    plan_.comm_bytes.all_gather += sent;
    task.cost.sent_bytes = static_cast<double>(sent);
  }

  void finish_gradients() {
    if (tied() && plan_.has_sums()) {
      Task& task = add_task(TaskKind::combine, LaneId::reduce, 0, -1);
      use(task, tied_sum_, Role::tied_sum, Access::read);
      use(task, sums_[0], Role::sum, Access::update);
      task.cost.bytes = static_cast<double>(tied_part() * 12);
    }
    for (int unit = head(); unit >= 0; --unit) {
      Task& norm = add_task(TaskKind::norm, LaneId::reduce, unit, -1);
      use_gradient(norm);
      use(norm, squares_, Role::squares, Access::update);
      norm.cost.bytes = static_cast<double>(layout(unit).shard * 4);
      if (!plan_.has_sums() || plan_.sharded_optimizer() || single()) continue;
      Task& sums = add_task(TaskKind::gather_sums, LaneId::reduce, unit, -1);
      use(sums, sums_[at(unit)], Role::sum, Access::update);
      count_all_gather(sums, layout(unit).shard * 4);
    }
  }

  // The gradient of the unit as norm and update read it.
  void use_gradient(Task& task) {
    if (plan_.has_sums()) return use(task, sums_[at(task.unit)], Role::sum, Access::read);
    use(task, gradients_[at(task.unit)], Role::gradients, Access::read);
    if (task.unit == 0 && tied()) use(task, tied_gradients_, Role::tied_gradients, Access::read);
  }

  void consensus() {
    Task& task = add_task(TaskKind::consensus, LaneId::reduce, -1, -1);
    use(task, squares_, Role::squares, Access::update);
    use(task, losses_, Role::losses, Access::update);
    use(task, state_, Role::state, Access::update);
    const std::size_t bytes = sizeof(device::StepMessage);
    use(task, add_buffer("messages", Kind::staging, bytes * at(r_.ranks), false), Role::staging, Access::write);
    plan_.comm_bytes.consensus += bytes * at(r_.ranks - 1);
    task.cost.sent_bytes = static_cast<double>(bytes * at(r_.ranks - 1));
  }

  void update(int unit) {
    const State& s = states_[at(unit)];
    Task& task = add_task(TaskKind::update, LaneId::compute, unit, -1);
    use(task, state_, Role::state, Access::read);
    use_gradient(task);
    if (s.master >= 0) use(task, s.master, Role::master, Access::update);
    use(task, s.moment1, Role::moment1, Access::update);
    use(task, s.moment2, Role::moment2, Access::update);
    if (s.shard >= 0)
      use(task, s.shard, Role::shard, Access::update);
    else
      use(task, s.parameters, Role::parameters, Access::update);
    task.cost.bytes = static_cast<double>(plan_.part_size(at(unit)) * (24 + 2 * element_));
    if (!plan_.sharded_optimizer() || plan_.sharded_parameters()) return;
    Task& spread = add_task(TaskKind::gather, LaneId::gather, unit, -1);
    use(spread, s.parameters, Role::parameters, Access::update);
    count_all_gather(spread, layout(unit).shard * element_);
  }

  // Buffers of a unit that live from step to step; -1 where the placement has none.
  struct State {
    int parameters = -1, shard = -1, master = -1, moment1 = -1, moment2 = -1, gradients = -1;
  };

  const PlanRequest& r_;
  const models::Model& model_;
  const int units_;
  const std::size_t element_, activation_;
  StepPlan plan_{};
  int batch_ = -1, state_ = -1, losses_ = -1, squares_ = -1, constants_ = -1;
  std::vector<State> states_;
  std::vector<std::vector<int>> gathers_before_, releases_after_;  // units, per visit
  // The newest buffer of each unit (and micro-batch); -1: none.
  std::vector<int> gathered_, gradients_, local_sums_, sums_, residual_, inputs_, saved_;
  int tied_gradients_ = -1, tied_local_sum_ = -1, tied_sum_ = -1;
  std::vector<Produced> pending_, produced_;
};

}  // namespace

std::vector<Segment> segments_of(const Recompute& recompute, std::size_t layers) {
  const int n = static_cast<int>(layers);
  std::vector<Segment> segments;
  if (recompute.kind == Recompute::Kind::sqrt) {
    const int length = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(layers))));
    for (int first = 1; first <= n; first += length) segments.push_back({first, std::min(n, first + length - 1), true});
    return segments;
  }
  for (int unit = 1; unit <= n; ++unit) segments.push_back({unit, unit, recompute.kind == Recompute::Kind::block});
  if (recompute.kind == Recompute::Kind::list)
    for (const std::int64_t block : recompute.blocks) {
      if (block < 0 || block >= n)
        fail(Exit::usage, "training.recompute names block {}, but the model has blocks 0 to {}", block, n - 1);
      segments[static_cast<std::size_t>(block)].recompute = true;
    }
  return segments;
}

StepPlan make_plan(const PlanRequest& request) {
  StepPlan plan = Builder(request).build();
  assign_offsets(plan);
  derive_waits(plan);
  predict_memory(plan);
  return plan;
}

}  // namespace strata::runtime

#include "runtime/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/plan/border_tasks.h"
#include "runtime/plan/draft.h"
#include "runtime/plan/fetches.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/offsets.h"
#include "runtime/plan/step_state.h"
#include "runtime/plan/updates.h"
#include "runtime/plan/visits.h"
#include "runtime/plan/waits.h"

namespace strata::runtime {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// Builds the task list in issue order: visit after visit, with what has to be fetched before each.
class Builder {
 public:
  explicit Builder(const PlanRequest& request)
      : r_(request),
        d_(request),
        tiling_(request, d_.plan.layout),
        gradients_(d_),
        updates_(d_, gradients_),
        fetches_(d_),
        activation_(request.shape.tokens() * d_.model.hidden * d_.element) {
    add_state();
  }

  StepPlan build() {
    const std::vector<Visit> visits = make_visits(r_, tiling_);
    fetches_.find(visits, tiling_);
    begin_step();
    find_returns(visits);
    for (std::size_t v = 0; v < visits.size(); ++v) {
      update_before(static_cast<int>(v), visits[v].unit);
      if (v > 0 || !gathers_early()) fetches_.before(static_cast<int>(v));
      for (const Kept& input : returns_before_[v]) return_input(input);
      const auto& calls = visits[v].calls;
      for (std::size_t c = 0; c < calls.size(); ++c) {
        const Call* next = c + 1 < calls.size()    ? &calls[c + 1]
                           : v + 1 < visits.size() ? &visits[v + 1].calls[0]
                                                   : nullptr;
        run(calls[c]);
        gradients_.after_call(!next || next->unit != calls[c].unit || next->kind == TaskKind::forward);
      }
      fetches_.after(static_cast<int>(v));
    }
    if (!r_.forward_only) update_state();
    border_->end();
    return std::move(d_.plan);
  }

 private:
  // What lives from step to step beside the units' own.
  void add_state() {
    const auto add = [&](const char* name, std::size_t bytes) {
      return d_.add_buffer(name, Kind::workspace, Tier::device, bytes, true);
    };
    const auto filled = [&](int buffer) {
      d_.plan.buffers[at(buffer)].filled = true;
      return buffer;
    };
    batch_ = d_.add_buffer("batch", Kind::activations, Tier::device,
                           at(r_.accumulation) * r_.shape.tokens() * models::Batch::kBytesPerToken, true);
    state_ = add("state", sizeof(StepState));
    losses_ = add("losses", LossState::bytes(d_.model.units.size()));
    if (!r_.forward_only) d_.squares = add("squares", sizeof(SquareState));
    if (d_.model.constants_bytes) constants_ = filled(add("constants", d_.model.constants_bytes));
    caches_.assign(at(d_.units()), -1);
    if (r_.shape.cache > 0)
      logits_ = d_.add_buffer("logits", Kind::activations, Tier::device, d_.model.vocabulary * sizeof(float), true);
    for (int unit = 0; unit < d_.units(); ++unit)
      if (const std::size_t cache = d_.unit(unit).bytes().cache)
        caches_[at(unit)] = filled(
            d_.add_buffer("keys and values of " + d_.unit(unit).name(), Kind::activations, Tier::device, cache, true));
    int pending = -1;
    if (d_.plan.cyclic)
      pending = d_.add_buffer("pending scalars", Kind::workspace, Tier::host, sizeof(device::StepScalars), true);
    if (!r_.forward_only)
      updates_.set_scalars(d_.plan.cyclic ? pending : state_, d_.plan.cyclic ? Role::pending : Role::state);
    border_.emplace(d_, BorderTasks::Buffers{batch_, state_, losses_, d_.squares, logits_, pending});
    residual_.assign(at(r_.accumulation), -1);
    inputs_.assign(at(d_.units()) * at(r_.accumulation), -1);
    saved_ = inputs_;
    kept_ = inputs_;
  }

  // What the first units' forward needs is gathered while the last updates of the step before still run, which the host
  // waits for before it writes: 1 to 4% of the step of a model of 8B parameters on 8 GPUs, as the simulator has it.
  bool gathers_early() const {
    return !r_.forward_only && !d_.plan.cyclic && d_.plan.sharded_parameters() &&
           d_.plan.placement.parameters.tier == Tier::device;
  }

  void begin_step() {
    border_->save_state();
    if (gathers_early()) fetches_.before(0);
    border_->begin();
  }

  void update_state() {
    gradients_.finish();
    consensus();
    if (d_.plan.cyclic)
      updates_.read_ahead();
    else
      updates_.advance(d_.last());
  }

  // Of what the unit shares with another: all, or the part of the holder that is a tile of the table.
  ElementRange shared_range(int unit, int tile) const {
    const ElementRange& all = d_.layout(unit).shared->elements;
    if (tile < 0) return all;
    const models::Part part = d_.unit(tiling_.table_unit()).parts()[at(tiling_.table_first() + tile)];
    return {part.begin, tile + 1 == tiling_.tiles() ? all.end : part.end};
  }

  // An update that the last step left is done before anything of its unit is fetched or used.
  void update_before(int visit, int unit) {
    if (!d_.plan.cyclic) return;
    d_.when = When::pending;
    updates_.advance(std::max(unit, fetches_.last_unit(visit)));
    d_.when = When::always;
  }
  static void set_range(Task& task, int part, const ElementRange& range) {
    task.part = part;
    task.begin = range.begin;
    task.end = range.end;
  }

  // The input of a segment that is run again in backward, where it is kept in another tier between the two.
  struct Kept {
    int unit, micro_batch;
  };
  bool keeps_away(int unit) const {
    if (d_.plan.placement.activations == Tier::device) return false;
    return std::any_of(r_.segments.begin(), r_.segments.end(),
                       [&](const Segment& s) { return s.recompute && s.first == unit; });
  }
  void find_returns(const std::vector<Visit>& visits) {
    returns_before_.resize(visits.size());
    std::vector<int> forward(kept_.size(), -1);
    std::vector<bool> returned(kept_.size());
    for (int v = 0; v < static_cast<int>(visits.size()); ++v)
      for (const Call& call : visits[at(v)].calls) {
        if (!keeps_away(call.unit)) continue;
        const std::size_t i = at(call.micro_batch * d_.units() + call.unit);
        if (call.kind == TaskKind::forward) forward[i] = v;
        if (call.kind != TaskKind::recompute || returned[i]) continue;
        returned[i] = true;
        returns_before_[at(std::max(forward[i] + 1, v - 1))].push_back({call.unit, call.micro_batch});
      }
  }
  void keep_input(const Call& call) {
    const int x = input_of(call.unit, call.micro_batch);
    const std::string what = fmt::format("input of {}", d_.unit(call.unit).name());
    int& home = kept_[at(call.micro_batch * d_.units() + call.unit)];
    home = d_.add_buffer(what, Kind::activations, d_.plan.placement.activations, activation_, false);
    d_.put({d_.whole(x)}, {d_.whole(home)}, call.unit, what);
  }
  void return_input(const Kept& input) {
    const int home = kept_[at(input.micro_batch * d_.units() + input.unit)];
    input_of(input.unit, input.micro_batch) =
        d_.bring({d_.whole(home)}, Tier::device, input.unit, fmt::format("input of {}", d_.unit(input.unit).name()),
                 Kind::activations)[0]
            .buffer;
  }

  int parameters_of(const Piece& piece) const { return fetches_.buffer(piece); }
  int& input_of(int unit, int g) { return inputs_[at(g * d_.units() + unit)]; }
  int& saved_of(int unit, int g) { return saved_[at(g * d_.units() + unit)]; }

  void run(const Call& call) {
    const bool parts_end = call.ends || call.part < 0;
    switch (call.kind) {
      case TaskKind::forward:
        forward(call, !recomputed(call.unit));
        if (parts_end && keeps_away(call.unit)) keep_input(call);
        return;
      case TaskKind::recompute:
        return forward(call, true);
      case TaskKind::loss:
        gradients_.before_call(call.unit);
        return loss(call);
      default:
        gradients_.before_call(call.unit);
        return backward(call);
    }
  }
  bool recomputed(int unit) const {
    for (const Segment& s : r_.segments)
      if (unit >= s.first && unit <= s.last) return s.recompute;
    return false;
  }

  void use_common(Task& task, const Call& call, std::size_t workspace) {
    const models::Unit& unit = d_.unit(call.unit);
    Draft::use(task, batch_, Role::batch, Access::read);
    Draft::use(task, state_, Role::state, Access::read);
    if (constants_ >= 0) Draft::use(task, constants_, Role::constants, Access::read);
    if (!workspace) return;
    // One workspace for all parts of a call.
    if (call.starts)
      workspace_ = d_.add_buffer("workspace of " + unit.name(), Kind::workspace, Tier::device, workspace, false);
    Draft::use(task, workspace_, Role::workspace, call.starts ? Access::write : Access::update);
  }
  Task& add_call(const Call& call, std::size_t workspace) {
    Task& task = d_.add_task(call.kind, LaneId::compute, call.unit, call.micro_batch);
    const Piece piece{call.unit, call.part};
    set_range(task, call.part, d_.range_of(piece));
    if (call.kind != TaskKind::backward || d_.unit(call.unit).ports().parameters_in_backward)
      Draft::use(task, parameters_of(piece), Role::parameters, Access::read);
    use_common(task, call, workspace);
    if (const auto& shared = d_.layout(call.unit).shared)
      Draft::use(task, parameters_of({shared->unit, -1}), Role::shared_parameters, Access::read);
    if (d_.unit(call.unit).ports().input)
      Draft::use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    return task;
  }
  void set_work(Task& task, const models::Work& work) const {
    const auto seq = static_cast<double>(r_.shape.seq);
    task.cost.flops = work.flops;
    task.cost.attention_flops = work.attention_flops * (r_.mean_squares > 0 ? r_.mean_squares / (seq * seq) : 1);
    task.cost.bytes = work.bytes;
  }

  void forward(const Call& call, bool keep) {
    const models::Unit& unit = d_.unit(call.unit);
    const models::UnitBytes bytes = unit.bytes();
    Task& task = add_call(call, bytes.forward_workspace);
    if (bytes.saved) {
      if (call.starts)
        saving_ = d_.add_buffer("saved by " + unit.name(), Kind::activations, Tier::device, bytes.saved, false);
      Draft::use(task, saving_, Role::saved, call.starts ? Access::write : Access::update);
      saved_of(call.unit, call.micro_batch) = keep ? saving_ : -1;
    }
    if (caches_[at(call.unit)] >= 0) Draft::use(task, caches_[at(call.unit)], Role::cache, Access::update);
    const bool by_parts = unit.ports().output_by_parts;
    const bool makes_output = by_parts ? call.starts : call.ends;
    if (call.wants_output && (makes_output || by_parts)) {
      int& y = input_of(call.unit + 1, call.micro_batch);
      if (makes_output)
        y = d_.add_buffer("output of " + unit.name(), Kind::activations, Tier::device, activation_, false);
      Draft::use(task, y, Role::y, makes_output ? Access::write : Access::update);
    }
    Draft::use(task, losses_, Role::losses, Access::update);
    set_work(task, unit.work(models::Pass::forward, {task.begin, task.end}));
  }

  void write_gradients(Task& task, const Piece& piece) { gradients_.write(task, piece, d_.range_of(piece)); }
  void write_shared_gradients(Task& task, int tile) {
    gradients_.write_shared(task, {task.unit, tile}, shared_range(task.unit, tile));
  }
  void write_residual(Task& task) {
    int& residual = residual_[at(task.micro_batch)];
    residual = d_.add_buffer("gradient of the residual stream", Kind::activations, Tier::device, activation_, false);
    Draft::use(task, residual, Role::residual, Access::write);
  }

  void loss(const Call& call) {
    if (call.step) return loss_step(call);
    const models::LossUnit& unit = d_.model.loss_unit();
    Task& task = add_call(call, unit.loss_workspace());
    Draft::use(task, losses_, Role::losses, Access::update);
    if (logits_ >= 0) Draft::use(task, logits_, Role::logits, Access::write);
    set_work(task, unit.loss_work(!r_.forward_only));
    if (r_.forward_only) return;
    write_residual(task);
    write_gradients(task, {call.unit, -1});
    if (d_.layout(call.unit).shared) write_shared_gradients(task, -1);
  }

  // A step of the norm is about the unit's first part, the others about a tile of the table.
  void loss_step(const Call& call) {
    using models::LossStep;
    const bool of_norm = *call.step == LossStep::norm || *call.step == LossStep::finish;
    const Piece norm{call.unit, tiling_.tiled(call.unit) ? 0 : -1};
    const Piece piece = of_norm ? norm : Piece{tiling_.table_unit(), tiling_.table_first() + call.part};
    const bool shared = !of_norm && piece.unit != call.unit;
    Task& task = d_.add_task(call.kind, LaneId::compute, call.unit, call.micro_batch);
    task.step = call.step;
    set_range(task, call.part, d_.range_of(piece));
    Draft::use(task, parameters_of(piece), shared ? Role::shared_parameters : Role::parameters, Access::read);
    use_common(task, call, d_.model.loss_unit().tiled_loss_workspace());
    if (of_norm) Draft::use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (*call.step == LossStep::finish) {
      Draft::use(task, losses_, Role::losses, Access::update);
      if (!r_.forward_only) write_residual(task);
    }
    if (r_.forward_only) {
      // Nothing learns from it.
    } else if (*call.step == LossStep::gradients && shared) {
      set_range(task, call.part, shared_range(call.unit, call.part));
      write_shared_gradients(task, call.part);
    } else if (*call.step == LossStep::gradients || *call.step == LossStep::finish) {
      write_gradients(task, piece);
    }
    set_work(task, d_.model.loss_unit().step_work(*call.step, task.end - task.begin));
  }

  void backward(const Call& call) {
    const models::Unit& unit = d_.unit(call.unit);
    const models::UnitBytes bytes = unit.bytes();
    Task& task = add_call(call, bytes.backward_workspace);
    if (bytes.saved) Draft::use(task, saved_of(call.unit, call.micro_batch), Role::saved, Access::read);
    Draft::use(task, residual_[at(call.micro_batch)], Role::residual, Access::update);
    write_gradients(task, {call.unit, call.part});
    if (d_.layout(call.unit).shared) write_shared_gradients(task, -1);
    set_work(task, unit.work(models::Pass::backward, {task.begin, task.end}));
  }

  void consensus() {
    Task& task = d_.add_task(TaskKind::consensus, LaneId::reduce, -1, -1);
    Draft::use(task, d_.squares, Role::squares, Access::update);
    Draft::use(task, losses_, Role::losses, Access::update);
    Draft::use(task, state_, Role::state, Access::update);
    const std::size_t bytes = sizeof(device::StepMessage);
    Draft::use(task, d_.add_buffer("messages", Kind::staging, Tier::device, bytes * at(r_.ranks), false), Role::staging,
               Access::write);
    d_.plan.comm_bytes.consensus += bytes * at(r_.ranks - 1);
    task.cost.sent_bytes = static_cast<double>(bytes * at(r_.ranks - 1));
  }

  const PlanRequest& r_;
  Draft d_;
  const Tiling tiling_;
  Gradients gradients_;
  Updates updates_;
  Fetches fetches_;
  const std::size_t activation_;  // bytes of the residual stream of a micro-batch
  int batch_ = -1, state_ = -1, losses_ = -1, constants_ = -1;
  std::optional<BorderTasks> border_;
  std::vector<int> caches_;  // by unit; -1: none
  int logits_ = -1;
  std::vector<std::vector<Kept>> returns_before_;  // per visit
  // The newest buffer of each unit, or micro-batch, or both; -1: none.
  std::vector<int> residual_, inputs_, saved_, kept_;
  int workspace_ = -1, saving_ = -1;  // of the call whose parts are being run
};

}  // namespace

StepPlan make_plan(const PlanRequest& request) {
  StepPlan plan = Builder(request).build();
  assign_offsets(plan);
  derive_waits(plan);
  predict_memory(plan);
  return plan;
}

}  // namespace strata::runtime

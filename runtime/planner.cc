#include "runtime/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "device/error.h"
#include "device/memory.h"
#include "runtime/step_state.h"
#include "runtime/visits.h"

namespace strata::runtime {
namespace {

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + device::kBufferAlignment - 1) / device::kBufferAlignment * device::kBufferAlignment;
}

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
    plan_.forward_only = r_.forward_only;
    plan_.placement = r_.placement;
    plan_.layout = make_layout(model_, r_.ranks, r_.moments);
    tiling_.emplace(r_, plan_.layout);
    plan_.tile_bytes = r_.tile_bytes;
    int pieces = 0;
    for (const auto& unit : model_.units) {
      first_piece_.push_back(pieces);
      pieces += static_cast<int>(unit->parts().size()) + 1;
    }
    gathered_.assign(at(pieces), -1);
    local_sums_.assign(at(pieces), -1);
    tied_local_sums_.assign(at(tiling_->tiles()) + 1, -1);
  }

  StepPlan build() {
    add_state();
    const std::vector<Visit> visits = make_visits(r_, *tiling_);
    find_gathers(visits);
    for (std::size_t v = 0; v < visits.size(); ++v) {
      for (const Piece& piece : gathers_before_[v]) gather(piece);
      for (const Call& call : visits[v].calls) {
        run(call);
        reduce_pending();  // behind the next call's issue, so that backward runs on while gradients travel
        std::swap(pending_, produced_);
      }
      for (const Piece& piece : releases_after_[v]) gathered_[index(piece)] = -1;
    }
    if (r_.forward_only) return std::move(plan_);
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
    if (!r_.forward_only) squares_ = add_buffer("squares", Kind::workspace, sizeof(SquareState), true);
    if (model_.constants_bytes) constants_ = add_buffer("constants", Kind::workspace, model_.constants_bytes, true);
    caches_.assign(at(units_), -1);
    if (r_.shape.cache > 0) logits_ = add_buffer("logits", Kind::activations, model_.vocabulary * sizeof(float), true);
    for (int unit = 0; unit < units_; ++unit) {
      const std::string& name = model_.units[at(unit)]->name();
      const UnitLayout& u = layout(unit);
      const std::size_t part = plan_.part_size(at(unit));
      State& s = states_.emplace_back();
      if (plan_.sharded_parameters())
        s.shard = add_buffer("shard of " + name, Kind::parameters, u.shard * element_, true);
      else
        s.parameters = add_buffer("parameters of " + name, Kind::parameters, u.padded * element_, true);
      if (const std::size_t cache = model_.units[at(unit)]->bytes().cache)
        caches_[at(unit)] = add_buffer("keys and values of " + name, Kind::activations, cache, true);
      if (r_.forward_only) continue;
      if (!fp32()) s.master = add_buffer("master of " + name, Kind::optimizer, part * 4, true);
      const std::size_t moment = plan_.moment_bytes(at(unit));
      s.moment1 = add_buffer("moment 1 of " + name, Kind::optimizer, moment, true);
      if (moment_count(r_.algorithm) > 1) s.moment2 = add_buffer("moment 2 of " + name, Kind::optimizer, moment, true);
      // ZeRO-1 holds the whole gradient; a rank alone has nothing to share.
      if (plan_.sharded_optimizer() && !r_.placement.gradients.sharded)
        s.gradients = add_buffer("gradients of " + name, Kind::gradients, u.padded * element_, true);
    }
    gradients_.assign(at(units_), -1);
    sums_.assign(at(units_), -1);
    residual_.assign(at(r_.accumulation), -1);
    inputs_.assign(at(units_ * r_.accumulation), -1);
    saved_.assign(at(units_ * r_.accumulation), -1);
  }

  // What one gather brings: a unit (part -1), or a part of it.
  struct Piece {
    int unit, part;
  };
  std::size_t index(const Piece& piece) const { return at(first_piece_[at(piece.unit)] + piece.part + 1); }
  struct Range {
    std::size_t begin, end;
    std::size_t size() const { return end - begin; }
  };
  // Elements of the flat buffer: the last part takes the padding.
  Range range_of(const Piece& piece) const {
    const auto parts = model_.units[at(piece.unit)]->parts();
    if (piece.part < 0) return {0, layout(piece.unit).padded};
    const bool last = at(piece.part) + 1 == parts.size();
    return {parts[at(piece.part)].begin, last ? layout(piece.unit).padded : parts[at(piece.part)].end};
  }
  // Of the tied weight's gradient.
  Range tied_range_of(int tile) const {
    if (tile < 0) return {0, plan_.layout.tied};
    const models::Part part = model_.units[0]->parts()[at(tile)];
    return {part.begin, tile + 1 == tiling_->tiles() ? plan_.layout.tied : part.end};
  }
  std::string text_of(const char* what, const Piece& piece) const {
    const std::string& name = model_.units[at(piece.unit)]->name();
    return piece.part < 0 ? fmt::format("{} {}", what, name) : fmt::format("{} {}, part {}", what, name, piece.part);
  }

  // Which gathers are issued before each visit and which gathered pieces end after it: a unit is held as long as it is
  // needed within the next `prefetch` visits, so that at most prefetch + 1 are; a part no longer than to the next
  // visit, so that at most two are. A tied embedding that is gathered whole is held throughout.
  void find_gathers(const std::vector<Visit>& visits) {
    const int n = static_cast<int>(visits.size());
    gathers_before_.resize(visits.size());
    releases_after_.resize(visits.size());
    if (!plan_.sharded_parameters()) return;
    const bool throughout = tied() && !tiling_->tiled(0);
    std::vector<std::vector<int>> needs(gathered_.size());
    for (int v = 0; v < n; ++v) {
      const Visit& visit = visits[at(v)];
      if (visit.needs_parameters) needs[index({visit.unit, visit.part})].push_back(v);
      if (throughout && visit.unit == head()) needs[index({0, -1})].push_back(v);
    }
    for (int unit = 0; unit < units_; ++unit)
      for (int part = -1; part < static_cast<int>(model_.units[at(unit)]->parts().size()); ++part) {
        const auto& when = needs[index({unit, part})];
        const int ahead = part < 0 ? r_.prefetch : std::min(r_.prefetch, 1);
        const bool stays = throughout && unit == 0;
        for (std::size_t i = 0; i < when.size(); ++i) {
          const bool held = i > 0 && (stays || when[i] - ahead <= when[i - 1] + 1);
          if (!held) gathers_before_[at(std::max(0, when[i] - ahead))].push_back({unit, part});
          const bool holds = i + 1 < when.size() && (stays || when[i + 1] - ahead <= when[i] + 1);
          if (!holds) releases_after_[at(when[i])].push_back({unit, part});
        }
      }
    // Gathers run in order in their lane: what is needed first goes first.
    for (int v = 0; v < n; ++v)
      std::stable_sort(gathers_before_[at(v)].begin(), gathers_before_[at(v)].end(),
                       [&](const Piece& a, const Piece& b) {
                         const auto next = [&](const Piece& piece) {
                           const auto& when = needs[index(piece)];
                           return *std::lower_bound(when.begin(), when.end(), v);
                         };
                         return next(a) < next(b);
                       });
  }

  void gather(const Piece& piece) {
    const Range range = range_of(piece);
    const int buffer = add_buffer(text_of("gathered", piece), Kind::parameters, range.size() * element_, false);
    Task& task = add_task(TaskKind::gather, LaneId::gather, piece.unit, -1);
    set_range(task, piece.part, range);
    use(task, states_[at(piece.unit)].shard, Role::shard, Access::read);
    use(task, buffer, Role::parameters, Access::write);
    count_all_gather(task, element_);
    gathered_[index(piece)] = buffer;
  }
  static void set_range(Task& task, int part, const Range& range) {
    task.part = part;
    task.begin = range.begin;
    task.end = range.end;
  }

  int parameters_of(const Piece& piece) const {
    return plan_.sharded_parameters() ? gathered_[index(piece)] : states_[at(piece.unit)].parameters;
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
    use(task, batch_, Role::batch, Access::read);
    use(task, state_, Role::state, Access::read);
    if (constants_ >= 0) use(task, constants_, Role::constants, Access::read);
    if (!workspace) return;
    // One workspace for all parts of a call.
    if (call.starts) workspace_ = add_buffer("workspace of " + unit.name(), Kind::workspace, workspace, false);
    use(task, workspace_, Role::workspace, call.starts ? Access::write : Access::update);
  }
  Task& add_call(const Call& call, std::size_t workspace) {
    Task& task = add_task(call.kind, LaneId::compute, call.unit, call.micro_batch);
    const Piece piece{call.unit, call.part};
    set_range(task, call.part, range_of(piece));
    if (!(call.kind == TaskKind::backward && call.unit == 0))
      use(task, parameters_of(piece), Role::parameters, Access::read);
    use_common(task, call, workspace);
    return task;
  }

  void forward(const Call& call, bool keep) {
    const models::Unit& unit = *model_.units[at(call.unit)];
    const models::UnitBytes bytes = unit.bytes();
    Task& task = add_call(call, bytes.forward_workspace);
    if (call.unit > 0) use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (bytes.saved) {
      if (call.starts) saving_ = add_buffer("saved by " + unit.name(), Kind::activations, bytes.saved, false);
      use(task, saving_, Role::saved, call.starts ? Access::write : Access::update);
      saved_of(call.unit, call.micro_batch) = keep ? saving_ : -1;
    }
    if (caches_[at(call.unit)] >= 0) use(task, caches_[at(call.unit)], Role::cache, Access::update);
    // The embedding's parts each write rows of y, a block's last part all of it.
    const bool makes_output = call.unit == 0 ? call.starts : call.ends;
    if (call.wants_output && (makes_output || call.unit == 0)) {
      int& y = input_of(call.unit + 1, call.micro_batch);
      if (makes_output) y = add_buffer("output of " + unit.name(), Kind::activations, activation_, false);
      use(task, y, Role::y, makes_output ? Access::write : Access::update);
    }
    use(task, losses_, Role::losses, Access::update);
    task.cost.flops = product_flops(task);
    const auto parts = static_cast<double>(call.part < 0 ? 1 : unit.parts().size());
    task.cost.bytes = static_cast<double>(bytes.saved + 2 * activation_) / parts;
  }

  // 2 x tokens for each element of a matrix.
  double product_flops(const Task& task) const {
    double elements = 0;
    if (task.unit == head())
      elements = static_cast<double>(task.step ? task.end - task.begin : model_.vocabulary * model_.hidden);
    else if (task.unit > 0)
      for (const models::Parameter& p : model_.units[at(task.unit)]->parameters())
        if (p.shape.size() == 2 && p.offset >= task.begin && p.offset < task.end)
          elements += static_cast<double>(p.size());
    return 2 * static_cast<double>(r_.shape.tokens()) * elements;
  }

  // The gradient buffer of a unit or part, written by the task.
  void write_gradients(Task& task, const Piece& piece) {
    int buffer = states_[at(piece.unit)].gradients;
    if (buffer < 0)
      buffer = add_buffer(text_of("gradients of", piece), Kind::gradients, range_of(piece).size() * element_, false);
    gradients_[at(piece.unit)] = buffer;
    use(task, buffer, Role::gradients, Access::write);
    produced_.push_back({piece, task.micro_batch, buffer, false});
  }
  void write_tied_gradients(Task& task, int tile) {
    tied_gradients_ =
        add_buffer("gradients of the tied head", Kind::gradients, tied_range_of(tile).size() * element_, false);
    use(task, tied_gradients_, Role::tied_gradients, Access::write);
    produced_.push_back({{head(), tile}, task.micro_batch, tied_gradients_, true});
  }
  void write_residual(Task& task) {
    int& residual = residual_[at(task.micro_batch)];
    residual = add_buffer("gradient of the residual stream", Kind::activations, activation_, false);
    use(task, residual, Role::residual, Access::write);
  }

  void loss(const Call& call) {
    if (call.step) return loss_step(call);
    Task& task = add_call(call, model_.head().loss_workspace());
    if (tied()) use(task, parameters_of({0, -1}), Role::tied, Access::read);
    use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    use(task, losses_, Role::losses, Access::update);
    if (logits_ >= 0) use(task, logits_, Role::logits, Access::write);
    const int products = r_.forward_only ? 1 : 3;
    task.cost.flops = products * product_flops(task);
    task.cost.bytes = 4 * static_cast<double>(r_.shape.tokens() * model_.vocabulary) * products;
    if (r_.forward_only) return;
    write_residual(task);
    write_gradients(task, {call.unit, -1});
    if (tied()) write_tied_gradients(task, -1);
  }

  // A step of the norm is about the head's first part, the others about a tile of the table.
  void loss_step(const Call& call) {
    using models::LossStep;
    const bool of_norm = *call.step == LossStep::norm || *call.step == LossStep::finish;
    const Piece norm{call.unit, tiling_->tiled(call.unit) ? 0 : -1};
    const Piece piece = of_norm ? norm : Piece{tiling_->table_unit(), tiling_->table_first() + call.part};
    Task& task = add_task(call.kind, LaneId::compute, call.unit, call.micro_batch);
    task.step = call.step;
    set_range(task, call.part, range_of(piece));
    use(task, parameters_of(piece), tied() && !of_norm ? Role::tied : Role::parameters, Access::read);
    use_common(task, call, model_.head().tiled_loss_workspace());
    if (of_norm) use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (*call.step == LossStep::finish) {
      use(task, losses_, Role::losses, Access::update);
      if (!r_.forward_only) write_residual(task);
    }
    if (r_.forward_only) {
      // Nothing learns from it.
    } else if (*call.step == LossStep::gradients && tied()) {
      set_range(task, call.part, tied_range_of(call.part));
      write_tied_gradients(task, call.part);
    } else if (*call.step == LossStep::gradients || *call.step == LossStep::finish) {
      write_gradients(task, piece);
    }
    task.cost.bytes = static_cast<double>(2 * activation_);
    if (of_norm) return;
    const int products = *call.step == LossStep::gradients ? 3 : 1;
    task.cost.flops = products * product_flops(task);
    task.cost.bytes = 4 * static_cast<double>(r_.shape.tokens() * (task.end - task.begin) / model_.hidden) * products;
  }

  void backward(const Call& call) {
    const models::Unit& unit = *model_.units[at(call.unit)];
    const models::UnitBytes bytes = unit.bytes();
    Task& task = add_call(call, bytes.backward_workspace);
    if (call.unit > 0) use(task, input_of(call.unit, call.micro_batch), Role::x, Access::read);
    if (bytes.saved) use(task, saved_of(call.unit, call.micro_batch), Role::saved, Access::read);
    use(task, residual_[at(call.micro_batch)], Role::residual, Access::update);
    write_gradients(task, {call.unit, call.part});
    task.cost.flops = 2 * product_flops(task);
    const auto parts = static_cast<double>(call.part < 0 ? 1 : unit.parts().size());
    task.cost.bytes =
        static_cast<double>(2 * bytes.saved) / parts + static_cast<double>((task.end - task.begin) * element_);
  }

  struct Produced {
    Piece piece;  // of the head, by tiles of the table, where tied
    int micro_batch, gradients;
    bool tied;
  };

  void reduce_pending() {
    if (plan_.has_sums())
      for (const Produced& p : pending_) reduce(p);
    pending_.clear();
  }

  void reduce(const Produced& p) {
    const Role role = p.tied ? Role::tied_gradients : Role::gradients;
    const int unit = p.piece.unit;
    const Range range = p.tied ? tied_range_of(p.piece.part) : range_of(p.piece);
    const auto mark = [&](Task& task) {
      set_range(task, p.piece.part, range);
      task.tied = p.tied;
      task.cost.bytes = static_cast<double>(range.size() * (element_ + 8));
    };
    if (plan_.fast) {
      int& local = p.tied ? tied_local_sums_[at(p.piece.part + 1)] : local_sums_[index(p.piece)];
      const bool starts = local < 0, last = p.micro_batch == r_.accumulation - 1;
      if (starts) local = add_buffer(text_of("local sum of", p.piece), Kind::gradients, range.size() * 4, false);
      Task& add = add_task(TaskKind::accumulate, LaneId::reduce, unit, p.micro_batch);
      mark(add);
      add.first = starts;
      use(add, p.gradients, role, Access::read);
      use(add, local, Role::local_sum, starts ? Access::write : Access::update);
      if (!last) return;
      Task& round = add_task(TaskKind::round, LaneId::reduce, unit, -1);
      mark(round);
      use(round, local, Role::local_sum, Access::read);
      use(round, p.gradients, role, Access::write);
    }
    int& sum = p.tied ? tied_sum_ : sums_[at(unit)];
    const bool starts = sum < 0;
    if (starts)
      sum = add_buffer("sum of " + model_.units[at(unit)]->name(), Kind::gradients,
                       (p.tied ? tied_part() : sum_elements(unit)) * 4, false);
    Task& task = add_task(TaskKind::reduce, LaneId::reduce, unit, p.micro_batch);
    mark(task);
    task.first = plan_.fast || p.micro_batch == 0;
    use(task, p.gradients, role, Access::read);
    if (!single()) {
      // A part may lie in one rank's shard, which then receives it from everyone: it travels bit by bit, so that what
      // is received at once is no more than the part.
      const std::size_t shard = layout(p.tied ? 0 : unit).shard;
      task.at_once = p.piece.part < 0 ? range.size() : up(range.size(), at(r_.ranks) * kShardAlignment) / at(r_.ranks);
      use(task,
          add_buffer(text_of("staging of", p.piece), Kind::staging,
                     at(r_.ranks) * std::min(shard, task.at_once) * element_, false),
          Role::staging, Access::write);
      std::size_t least = range.size();
      for (int rank = 0; rank < r_.ranks; ++rank) least = std::min(least, piece_of(range, shard, rank));
      plan_.comm_bytes.all_to_all += (range.size() - piece_of(range, shard, 0)) * element_;
      task.cost.sent_bytes = static_cast<double>((range.size() - least) * element_);
    }
    use(task, sum, p.tied ? Role::tied_sum : Role::sum, starts ? Access::write : Access::update);
  }

  static std::size_t up(std::size_t n, std::size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
  // Elements of the range that the rank owns.
  static std::size_t piece_of(const Range& range, std::size_t shard, int rank) {
    return comm::ShardedRange{shard, range.begin, range.end}.piece(rank).bytes();
  }

  // Rank 0's piece of the tied range is the largest: every rank's buffers have its size.
  std::size_t tied_part() const { return piece_of(tied_range_of(-1), layout(0).shard, 0); }

  // Of the task's range, elements of `size` bytes. Counted is what rank 0 sends; who sends most bounds the time.
  void count_all_gather(Task& task, std::size_t size) {
    const std::size_t shard = layout(task.unit).shard, others = at(r_.ranks - 1);
    std::size_t most = 0;
    for (int rank = 0; rank < r_.ranks; ++rank) most = std::max(most, piece_of({task.begin, task.end}, shard, rank));
    plan_.comm_bytes.all_gather += piece_of({task.begin, task.end}, shard, 0) * size * others;
    task.cost.sent_bytes = static_cast<double>(most * size * others);
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
      set_range(sums, -1, range_of({unit, -1}));
      count_all_gather(sums, 4);
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
    if (s.moment2 >= 0) use(task, s.moment2, Role::moment2, Access::update);
    if (s.shard >= 0)
      use(task, s.shard, Role::shard, Access::update);
    else
      use(task, s.parameters, Role::parameters, Access::update);
    task.cost.bytes = static_cast<double>(plan_.part_size(at(unit)) * (8 + 2 * element_) +
                                          2 * at(moment_count(r_.algorithm)) * plan_.moment_bytes(at(unit)));
    if (!plan_.sharded_optimizer() || plan_.sharded_parameters()) return;
    Task& spread = add_task(TaskKind::gather, LaneId::gather, unit, -1);
    use(spread, s.parameters, Role::parameters, Access::update);
    set_range(spread, -1, range_of({unit, -1}));
    count_all_gather(spread, element_);
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
  std::vector<int> caches_;  // by unit; -1: none
  int logits_ = -1;
  std::optional<Tiling> tiling_;
  std::vector<int> first_piece_;                                     // by unit: the whole unit, then its parts
  std::vector<std::vector<Piece>> gathers_before_, releases_after_;  // per visit
  // The newest buffer of each piece; of each unit, or micro-batch, or both; -1: none.
  std::vector<int> gathered_, local_sums_;
  std::vector<int> gradients_, sums_, residual_, inputs_, saved_;
  int workspace_ = -1, saving_ = -1;  // of the call whose parts are being run
  int tied_gradients_ = -1, tied_sum_ = -1;
  std::vector<int> tied_local_sums_;  // whole, then by tile
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

#include "runtime/execute/task_runner.h"

#include <algorithm>
#include <array>

#include "device/ops/elementwise.h"
#include "device/ops/gradient_sum.h"
#include "offload/swap_lane.h"
#include "runtime/plan/step_state.h"

namespace strata::runtime {
namespace {

using device::ConstView;
using device::DType;
using device::Lane;
using device::View;

std::size_t index(int i) {
  return static_cast<std::size_t>(i);
}
std::size_t index(LaneId lane) {
  return static_cast<std::size_t>(lane);
}
std::size_t index(Tier tier) {
  return static_cast<std::size_t>(tier);
}

}  // namespace

ControlBuffers::ControlBuffers(const StepPlan& plan) {
  for (const Task& task : plan.tasks) {
    if (task.lane == LaneId::host) continue;  // whose buffers stand for these on a GPU
    const auto find = [&](int& buffer, Role role) {
      if (const int found = task.buffer(role); found >= 0) buffer = found;
    };
    find(batch, Role::batch);
    find(state, Role::state);
    find(losses, Role::losses);
    find(squares, Role::squares);
    find(constants, Role::constants);
    find(logits, Role::logits);
    find(pending, Role::pending);
  }
}

TaskRunner::TaskRunner(const StepPlan& plan, const models::Model& model, const device::Optimizer& optimizer, int rank,
                       Storage& storage, const Lanes& lanes, comm::Communicator& gather, comm::Communicator& reduce)
    : plan_(plan),
      model_(model),
      optimizer_(optimizer),
      rank_(rank),
      storage_(storage),
      lanes_(lanes),
      gather_(gather),
      reduce_(reduce),
      buffers_(plan),
      pieces_(plan.tasks.size()) {
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    if (plan.tasks[t].kind == TaskKind::reduce) pieces_[t].resize(index(plan.ranks));
  for (const UnitLayout& unit : plan.layout.units) {
    auto& gaps = gaps_.emplace_back();
    std::size_t end = 0;
    for (const Run& run : unit.runs) {
      if (run.begin > end) gaps.push_back({end, run.begin - end});
      end = run.end;
    }
    if (unit.padded > end) gaps.push_back({end, unit.padded - end});
  }
}

void TaskRunner::run(const Task& task, std::size_t t) {
  Lane& lane = *lanes_[index(task.lane)];
  const Role gradients = task.shared ? Role::shared_gradients : Role::gradients;
  switch (task.kind) {
    case TaskKind::gather:
      return gather(task);
    case TaskKind::forward:
    case TaskKind::recompute:
      return forward(task);
    case TaskKind::loss:
      return loss(task);
    case TaskKind::backward:
      return backward(task);
    case TaskKind::accumulate:
    case TaskKind::round: {
      const std::size_t size = task.end - task.begin;
      const View gradient = storage_.view(task, gradients, plan_.dtype).sub(0, size);
      const View sum = storage_.view(task, Role::local_sum, DType::fp32).sub(0, size);
      if (task.kind == TaskKind::round) return cast(lane, sum, gradient);
      return task.first ? cast(lane, gradient, sum) : add(lane, gradient, sum);
    }
    case TaskKind::reduce:
      return reduce(task, t);
    case TaskKind::combine:
      return combine(task);
    case TaskKind::norm:
      return norm(task);
    case TaskKind::gather_sums: {
      const UnitLayout& u = plan_.layout.units[index(task.unit)];
      std::byte* sums = storage_.view(task, Role::sum, DType::fp32).data;
      const std::size_t shard = u.shard * sizeof(float);
      return reduce_.all_gather({shard, 0, u.padded * sizeof(float)}, sums + shard * index(rank_), sums);
    }
    case TaskKind::consensus:
      return consensus(task);
    case TaskKind::update:
      return update(task);
    case TaskKind::upload:
    case TaskKind::download:
    case TaskKind::read:
    case TaskKind::write:
      return move(task);
    case TaskKind::save:
      return saver_->save(lane, index(task.unit));
    case TaskKind::publish:
      return saver_->publish(lane);
    case TaskKind::carry:
    case TaskKind::host_write:
    case TaskKind::host_read:
      break;
  }
}

void TaskRunner::move(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  const bool reads = task.kind == TaskKind::read, writes = task.kind == TaskKind::write;
  std::array<offload::Range, offload::kMostRanges> ranges;
  const std::size_t count = task.uses.size() / 2;
  STRATA_CHECK_LE(count, ranges.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Use &source = task.uses[2 * i], &target = task.uses[2 * i + 1];
    const Use &there = reads ? source : target, &here = reads ? target : source;  // on NVMe, in memory
    if (reads || writes)
      ranges[i] = {storage_.place_of(task, there), storage_.view(task, here, DType::fp32).data, source.bytes};
    else
      cast(lane, storage_.view(task, source, DType::fp32), storage_.view(task, target, DType::fp32));
    const bool up = reads || task.kind == TaskKind::upload;
    (up ? moved_.read : moved_.written)[index(reads || writes ? Tier::nvme : Tier::host)] += source.bytes;
  }
  if (reads) offload::read(lane, *storage_.swap(), {ranges.data(), count});
  if (writes) offload::write(lane, *storage_.swap(), {ranges.data(), count});
}

void TaskRunner::gather(const Task& task) {
  const UnitLayout& u = plan_.layout.units[index(task.unit)];
  const std::size_t shard = u.shard * size_of(plan_.dtype);
  std::byte* whole = storage_.view(task, Role::parameters, plan_.dtype).data;
  const View own = storage_.view(task, Role::shard, plan_.dtype);  // none: the shard lies in its place
  gather_.all_gather({shard, task.begin * size_of(plan_.dtype), task.end * size_of(plan_.dtype)},
                     own ? own.data : whole + shard * index(rank_), whole);
}

models::Context TaskRunner::context(const Task& task) const {
  models::Context c{};
  const std::size_t tokens = plan_.tokens;
  const auto* base = reinterpret_cast<const std::uint32_t*>(
      at<std::byte>(buffers_.batch) + index(task.micro_batch) * tokens * models::Batch::kBytesPerToken);
  c.batch = {base, reinterpret_cast<const std::int32_t*>(base + tokens), base + 2 * tokens,
             reinterpret_cast<const device::RowRange*>(base + 3 * tokens)};
  c.micro_batch = static_cast<std::uint64_t>(task.micro_batch) * index(plan_.ranks) + index(rank_);
  c.scalars = &at<StepState>(buffers_.state)->scalars;
  if (buffers_.constants >= 0) c.constants = at<std::byte>(buffers_.constants);
  c.parameters = {storage_.view(task, Role::parameters, plan_.dtype), task.begin};
  const bool tile = task.step.has_value();  // else what is shared is there whole
  c.shared = {storage_.view(task, Role::shared_parameters, plan_.dtype), tile ? task.begin : 0};
  if (const View gradients = storage_.view(task, Role::shared_gradients, plan_.dtype); gradients && !tile) {
    const models::ElementRange& shared = plan_.layout.units[index(task.unit)].shared->elements;
    c.shared_gradients = {gradients.sub(0, shared.size()), shared.begin};
  }
  c.workspace = storage_.view(task, Role::workspace, DType::fp32);
  c.cache = {storage_.view(task, Role::cache, plan_.dtype), first_, rows_};
  return c;
}

// The parts of its unit that a task runs: [first, last).
std::pair<std::size_t, std::size_t> TaskRunner::parts_of(const Task& task) const {
  if (task.part >= 0) return {index(task.part), index(task.part) + 1};
  return {0, model_.units[index(task.unit)]->parts().size()};
}

void TaskRunner::zero_gaps(const Task& task, View gradients) {
  for (const Gap& gap : gaps_[index(task.unit)]) {
    const std::size_t from = std::max(gap.begin, task.begin), to = std::min(gap.begin + gap.size, task.end);
    if (from < to) zero(*lanes_[index(task.lane)], gradients.sub(from - task.begin, to - from));
  }
}

void TaskRunner::forward(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  const std::size_t size = activations();
  ConstView x;
  if (const View input = storage_.view(task, Role::x, plan_.dtype)) x = input.sub(0, size);
  View y = storage_.view(task, Role::y, plan_.dtype);
  if (y) y = y.sub(0, size);
  const models::Unit& unit = *model_.units[index(task.unit)];
  const auto [first, last] = parts_of(task);
  for (std::size_t part = first; part < last; ++part)
    unit.forward(lane, context(task), part, x, y, storage_.view(task, Role::saved, DType::fp32));
  if (y && last == unit.parts().size() && task.kind == TaskKind::forward)
    count_nonfinite(lane, y, at<LossState>(buffers_.losses)->nonfinite() + task.unit);
}

void TaskRunner::loss(const Task& task) {
  if (task.step) return loss_step(task);
  Lane& lane = *lanes_[index(task.lane)];
  const std::size_t size = activations();
  if (rows_ > 0)
    return model_.loss_unit().logits(lane, context(task), storage_.view(task, Role::x, plan_.dtype).sub(0, size),
                                     storage_.view(task, Role::logits, DType::fp32).sub(0, model_.vocabulary));
  const View gradients = storage_.view(task, Role::gradients, plan_.dtype);
  View dx;  // none in a plan of forwards alone
  if (const View residual = storage_.view(task, Role::residual, plan_.dtype)) dx = residual.sub(0, size);
  model_.loss_unit().loss(lane, context(task), storage_.view(task, Role::x, plan_.dtype).sub(0, size),
                          &at<LossState>(buffers_.losses)->loss, dx, gradients);
  if (!dx) return;
  zero_gaps(task, gradients);
  count_nonfinite(lane, dx, at<LossState>(buffers_.losses)->nonfinite() + task.unit);
}

void TaskRunner::loss_step(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  const std::size_t size = plan_.tokens * model_.hidden;
  ConstView x;
  View dx;
  if (const View input = storage_.view(task, Role::x, plan_.dtype)) x = input.sub(0, size);
  if (const View residual = storage_.view(task, Role::residual, plan_.dtype)) dx = residual.sub(0, size);
  const View own = storage_.view(task, Role::gradients, plan_.dtype),
             shared = storage_.view(task, Role::shared_gradients, plan_.dtype);
  View gradients = own ? own : shared;
  if (gradients) gradients = gradients.sub(0, task.end - task.begin);
  device::ExactSum* loss = *task.step == models::LossStep::finish ? &at<LossState>(buffers_.losses)->loss : nullptr;
  model_.loss_unit().loss_step(lane, context(task), *task.step, index(task.part), x, loss, dx, {gradients, task.begin});
  if (own) zero_gaps(task, gradients);
  if (dx) count_nonfinite(lane, dx, at<LossState>(buffers_.losses)->nonfinite() + task.unit);
}

void TaskRunner::backward(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  const std::size_t size = plan_.tokens * model_.hidden;
  const View gradients = storage_.view(task, Role::gradients, plan_.dtype);
  const View residual = storage_.view(task, Role::residual, plan_.dtype).sub(0, size);
  ConstView x;
  if (const View input = storage_.view(task, Role::x, plan_.dtype)) x = input.sub(0, size);
  const models::Unit& unit = *model_.units[index(task.unit)];
  const auto [first, last] = parts_of(task);
  for (std::size_t part = last; part-- > first;)
    unit.backward(lane, context(task), part, x, storage_.view(task, Role::saved, DType::fp32), residual, residual,
                  {gradients, task.begin});
  zero_gaps(task, gradients);
}

const UnitLayout& TaskRunner::layout_of(const Task& task) const {
  const UnitLayout& u = plan_.layout.units[index(task.unit)];
  return task.shared ? plan_.layout.units[index(u.shared->unit)] : u;
}

comm::ShardedRange::Piece TaskRunner::shared_piece(const models::ElementRange& shared, const UnitLayout& holder) const {
  return comm::ShardedRange{holder.shard, shared.begin, shared.end}.piece(rank_);
}

models::ElementRange TaskRunner::shared_of(const Task& task) const {
  if (task.buffer(Role::shared_gradients) < 0) return {0, 0};
  const UnitLayout& u = plan_.layout.units[index(task.unit)];
  STRATA_CHECK_EQ(u.sharers.size(), 1u);
  return plan_.layout.units[index(u.sharers[0])].shared->elements;
}

// A sum buffer holds the rank's shard, or, if the optimizer is whole, everything with the shard in its place; of what
// is shared, the rank's piece.
View TaskRunner::own_part(const Task& task) const {
  const UnitLayout& u = layout_of(task);
  if (task.shared) {
    const models::ElementRange& shared = plan_.layout.units[index(task.unit)].shared->elements;
    return storage_.view(task, Role::shared_sum, DType::fp32).sub(0, shared_piece(shared, u).bytes());
  }
  const View sum = storage_.view(task, Role::sum, DType::fp32);
  return plan_.sharded_optimizer() ? sum.sub(0, u.shard) : sum.sub(u.shard * index(rank_), u.shard);
}

void TaskRunner::reduce(const Task& task, std::size_t t) {
  Lane& lane = *lanes_[index(task.lane)];
  const UnitLayout& layout = layout_of(task);
  const std::size_t shard = layout.shard, element = size_of(plan_.dtype);
  const std::byte* gradients =
      storage_.view(task, task.shared ? Role::shared_gradients : Role::gradients, plan_.dtype).data;
  const View sum = storage_.view(task, task.shared ? Role::shared_sum : Role::sum, DType::fp32);
  // The first element of the sum: of the rank's piece of what is shared; of its shard, or, if the optimizer is whole,
  // of everything.
  std::size_t origin = plan_.sharded_optimizer() ? shard * index(rank_) : 0;
  if (task.shared) origin = shared_piece(plan_.layout.units[index(task.unit)].shared->elements, layout).begin;
  auto& pieces = pieces_[t];
  if (plan_.ranks == 1) {
    pieces[0] = gradients;
    return gradient_sum(lane, pieces, plan_.dtype, own_part(task), task.first);
  }
  const View staging = storage_.view(task, Role::staging, plan_.dtype);
  for (std::size_t at = task.begin; at < task.end; at += task.at_once) {
    const std::size_t to = std::min(task.end, at + task.at_once);
    const comm::ShardedRange range{shard * element, at * element, to * element};
    const auto own = comm::ShardedRange{shard, at, to}.piece(rank_);
    STRATA_CHECK_LE(pieces.size() * own.bytes(), staging.size);  // shared memory would not notice
    reduce_.all_to_all(range, gradients + (at - task.begin) * element, staging.data, pieces.data());
    if (own.bytes() > 0) gradient_sum(lane, pieces, plan_.dtype, sum.sub(own.begin - origin, own.bytes()), task.first);
    reduce_.release();
  }
}

void TaskRunner::combine(const Task& task) {
  const UnitLayout& u = plan_.layout.units[index(task.unit)];
  const auto piece = shared_piece({task.begin, task.end}, u);
  if (piece.bytes() == 0) return;
  add(*lanes_[index(task.lane)], storage_.view(task, Role::shared_sum, DType::fp32).sub(0, piece.bytes()),
      own_part(task).sub(piece.begin - u.shard * index(rank_), piece.bytes()));
}

void TaskRunner::norm(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  device::ExactSum* squares = &at<SquareState>(buffers_.squares)->squares;
  if (plan_.has_sums()) return gradient_square_sum(lane, own_part(task), {}, squares);
  const std::size_t size = plan_.layout.units[index(task.unit)].padded;
  const View gradients = storage_.view(task, Role::gradients, plan_.dtype);
  const models::ElementRange shared = shared_of(task);
  const auto alone = [&](std::size_t begin, std::size_t end) {
    if (begin < end) gradient_square_sum(lane, gradients.sub(begin, end - begin), {}, squares);
  };
  alone(0, shared.begin);
  if (shared.size())
    gradient_square_sum(lane, storage_.view(task, Role::shared_gradients, plan_.dtype).sub(0, shared.size()),
                        gradients.sub(shared.begin, shared.size()), squares);
  alone(shared.end, size);
}

void TaskRunner::consensus(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  auto* state = at<StepState>(buffers_.state);
  pack_message(lane, &at<SquareState>(buffers_.squares)->squares, &at<LossState>(buffers_.losses)->loss,
               &state->stop_requested, &state->message);
  auto* all = reinterpret_cast<device::StepMessage*>(storage_.view(task, Role::staging, DType::fp32).data);
  reduce_.exchange(reinterpret_cast<const std::byte*>(&state->message), sizeof(device::StepMessage),
                   reinterpret_cast<std::byte*>(all));
  resolve_step(lane, all, index(plan_.ranks), &state->scalars, &state->result);
}

void TaskRunner::update(const Task& task) {
  Lane& lane = *lanes_[index(task.lane)];
  const std::size_t part = plan_.part_begin(index(task.unit), rank_);
  const std::size_t begin = part + task.begin, end = part + task.end;
  const bool late = task.buffer(Role::pending) >= 0;
  const device::StepScalars* scalars =
      late ? at<device::StepScalars>(buffers_.pending) : &at<StepState>(buffers_.state)->scalars;
  // All of them start at `begin`, but for the gradient of what another unit shares, which starts with that.
  const View sum = storage_.view(task, Role::sum, DType::fp32),
             gradients = storage_.view(task, Role::gradients, plan_.dtype);
  const View others = storage_.view(task, Role::shared_gradients, plan_.dtype);
  const View master = storage_.view(task, Role::master, DType::fp32),
             parameters = storage_.view(task, Role::parameters, plan_.dtype);
  std::byte* moment1 = storage_.view(task, Role::moment1, DType::fp32).data;
  std::byte* moment2 = storage_.view(task, Role::moment2, DType::fp32).data;
  // A copy goes home whatever the step decided, so a skipped update writes it too: else what lay there would go.
  const bool copied = task.buffer(Role::parameters) != plan_.homes[index(task.unit)].parameters;
  const device::OnSkip on_skip = copied ? device::OnSkip::rewrite_parameter : device::OnSkip::leave_parameter;
  const UnitLayout& u = plan_.layout.units[index(task.unit)];
  const models::ElementRange shared = shared_of(task);
  const auto apply = [&](std::size_t from, std::size_t to, const Run& run) {
    if (from >= to) return;
    const std::size_t at = from - begin, n = to - from;
    ConstView first, second;
    if (sum) {
      first = sum.sub(at, n);
    } else if (from >= shared.begin && from < shared.end) {
      first = others.sub(from - std::max(begin, shared.begin), n);
      second = gradients.sub(at, n);
    } else {
      first = gradients.sub(at, n);
    }
    const std::size_t moments = u.moment_bytes(begin, from);
    device::update(lane, optimizer_, scalars,
                   {.first = first,
                    .second = second,
                    .master = master.sub(at, n),
                    .parameter = parameters ? parameters.sub(at, n) : View{},
                    .format = run.moments,
                    .moment1 = moment1 + moments,
                    .moment2 = moment2 ? moment2 + moments : nullptr,
                    .decay = run.decay,
                    .unit = static_cast<std::uint32_t>(task.unit),
                    .begin = from},
                   on_skip);
  };
  for (const Run& run : u.runs) {
    const std::size_t from = std::max(begin, run.begin), to = std::min(end, run.end);
    // The gradient of the shared range has two parts.
    apply(from, std::min(to, shared.begin), run);
    apply(std::max(from, shared.begin), std::min(to, shared.end), run);
    apply(std::max(from, shared.end), to, run);
  }
}

}  // namespace strata::runtime

#include "runtime/plan/gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace strata::runtime {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}
std::size_t up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

Gradients::Gradients(Draft& draft, int table_tiles)
    : d_(draft),
      has_sums_(draft.plan.has_sums()),
      sums_(at(draft.units())),
      whole_(at(draft.units()), -1),
      tied_local_sums_(at(table_tiles) + 1, -1) {
  int pieces = 0;
  for (int unit = 0; unit < d_.units(); ++unit) {
    first_piece_.push_back(pieces);
    pieces += static_cast<int>(d_.unit(unit).parts().size()) + 1;
    if (d_.request.forward_only) continue;
    // ZeRO-1 holds the whole gradient; a rank alone has nothing to share.
    if (d_.plan.sharded_optimizer() && !d_.request.placement.gradients.sharded && !away())
      whole_[at(unit)] = d_.add_buffer(d_.text_of("gradients of", {unit, -1}), Kind::gradients, Tier::device,
                                       d_.layout(unit).padded * d_.element, true);
    if (d_.plan.cyclic) make_home(unit, false);
  }
  local_sums_.assign(at(pieces), -1);
  if (d_.plan.cyclic && d_.tied() && !has_sums_) make_home(0, true);
}

std::size_t Gradients::sum_bytes(int unit, bool tied) const {
  if (has_sums_) return (tied ? tied_part() : d_.part_size(unit)) * sizeof(float);
  return (tied ? d_.plan.layout.tied : d_.layout(unit).padded) * d_.element;
}

// Rank 0's piece of the tied range is the largest: every rank's buffers have its size.
std::size_t Gradients::tied_part() const {
  return Draft::pieces_of({0, d_.plan.layout.tied}, d_.layout(0).shard, d_.request.ranks).of_rank0;
}

std::string Gradients::name_of(int unit, bool tied) const {
  const char* what = has_sums_ ? "sum" : "gradients";
  return tied ? fmt::format("{} of the tied head", what) : fmt::format("{} of {}", what, d_.unit(unit).name());
}

int Gradients::make_home(int unit, bool tied) {
  Sum& sum = sum_of(unit, tied);
  const bool whole_cycle = d_.plan.cyclic && !(tied && has_sums_);  // a tied sum ends in the embedding's
  sum.home = d_.add_buffer(name_of(unit, tied), Kind::gradients, d_.plan.placement.gradients.tier,
                           sum_bytes(unit, tied), whole_cycle);
  if (!away()) sum.window = sum.home;
  return sum.home;
}

void Gradients::write(Task& task, const Piece& piece, const ElementRange& range) {
  int buffer = whole_[at(piece.unit)];
  if (buffer < 0 && !has_sums_) buffer = sums_[at(piece.unit)].window;
  if (buffer < 0)
    buffer = d_.add_buffer(d_.text_of("gradients of", piece), Kind::gradients, Tier::device, range.size() * d_.element,
                           false);
  Draft::use(task, buffer, Role::gradients, Access::write);
  produced_.push_back({piece, range, task.micro_batch, buffer, false});
}

void Gradients::write_tied(Task& task, int tile, const ElementRange& range) {
  int buffer = has_sums_ ? -1 : tied_sum_.window;
  if (buffer < 0)
    buffer =
        d_.add_buffer("gradients of the tied head", Kind::gradients, Tier::device, range.size() * d_.element, false);
  Draft::use(task, buffer, Role::tied_gradients, Access::write);
  produced_.push_back({{d_.head(), tile}, range, task.micro_batch, buffer, true});
}

void Gradients::before_call(int unit) {
  // A gradient buffer that lives from step to step is emptied before the next micro-batch writes it.
  const auto in_it = [&](const Produced& p) { return p.gradients == whole_[at(unit)]; };
  if (std::any_of(pending_.begin(), pending_.end(), in_it)) reduce_pending();
  if (!away() || !has_sums_) return;
  open(unit, false);
  if (unit == d_.head() && d_.tied()) open(unit, true);
}

void Gradients::after_call(bool last) {
  if (last && !produced_.empty()) produced_.back().last = true;
  reduce_pending();
  std::swap(pending_, produced_);
}

void Gradients::finish() {
  reduce_pending();
  for (const Sum& sum : sums_) STRATA_CHECK(sum.complete);
}

void Gradients::reduce_pending() {
  for (const Produced& p : pending_) {
    if (has_sums_) {
      reduce(p);
    } else {
      Sum& sum = sum_of(p.piece.unit, p.tied);
      sum.window = p.gradients;
      sum.newest = 0;
      open_.emplace_back(p.piece.unit, p.tied);
    }
    if (!p.last && has_sums_) continue;
    for (const auto& [unit, tied] : open_) close(unit, tied);
    open_.clear();
  }
  pending_.clear();
}

void Gradients::open(int unit, bool tied) {
  Sum& sum = sum_of(unit, tied);
  if (sum.window >= 0 || sum.home < 0 || sum.newest < 0) return;
  sum.window = d_.bring({d_.whole(sum.home)}, Tier::device, unit, name_of(unit, tied), Kind::gradients)[0].buffer;
}

void Gradients::close(int unit, bool tied) {
  Sum& sum = sum_of(unit, tied);
  if (sum.window < 0) return;  // `fast`: nothing has been reduced yet
  if (sum.newest == d_.request.accumulation - 1 && !tied) complete(unit);
  if (!away()) return;
  if (sum.home < 0) make_home(unit, tied);
  d_.put({d_.whole(sum.window)}, {d_.whole(sum.home)}, unit, name_of(unit, tied));
  sum.window = -1;
}

// What has to happen to a sum when no micro-batch is to come.
void Gradients::complete(int unit) {
  Sum& sum = sums_[at(unit)];
  sum.complete = true;
  const bool both = unit == 0 && d_.tied();
  int tied = tied_sum_.window;
  if (both && tied < 0)
    tied = d_.bring({d_.whole(tied_sum_.home)}, Tier::device, unit, name_of(0, true), Kind::gradients)[0].buffer;
  if (both && has_sums_) {
    Task& task = d_.add_task(TaskKind::combine, LaneId::reduce, 0, -1);
    Draft::use(task, tied, Role::tied_sum, Access::read);
    Draft::use(task, sum.window, Role::sum, Access::update);
    task.cost.bytes = static_cast<double>(tied_part() * 12);
  }
  Task& norm = d_.add_task(TaskKind::norm, LaneId::reduce, unit, -1);
  Draft::use(norm, sum.window, has_sums_ ? Role::sum : Role::gradients, Access::read);
  if (both && !has_sums_) Draft::use(norm, tied, Role::tied_gradients, Access::read);
  Draft::use(norm, d_.squares, Role::squares, Access::update);
  norm.cost.bytes = static_cast<double>(has_sums_ ? d_.layout(unit).shard * 4 : d_.layout(unit).padded * d_.element);
  if (both && !has_sums_) norm.cost.bytes += static_cast<double>(d_.plan.layout.tied * d_.element);
  if (!has_sums_ || d_.plan.sharded_optimizer() || d_.single()) return;
  Task& sums = d_.add_task(TaskKind::gather_sums, LaneId::reduce, unit, -1);
  Draft::use(sums, sum.window, Role::sum, Access::update);
  sums.end = d_.layout(unit).padded;
  d_.count_all_gather(sums, sizeof(float));
}

bool Gradients::accumulate(const Produced& p) {
  int& local = p.tied ? tied_local_sums_[at(p.piece.part + 1)]
                      : local_sums_[at(first_piece_[at(p.piece.unit)] + p.piece.part + 1)];
  const bool starts = local < 0;
  if (starts)
    local =
        d_.add_buffer(d_.text_of("local sum of", p.piece), Kind::gradients, Tier::device, p.range.size() * 4, false);
  const auto add = [&](TaskKind kind, int micro_batch, Access of_gradient, Access of_sum) {
    Task& task = d_.add_task(kind, LaneId::reduce, p.piece.unit, micro_batch);
    task.part = p.piece.part;
    task.begin = p.range.begin;
    task.end = p.range.end;
    task.tied = p.tied;
    task.first = starts;
    task.cost.bytes = static_cast<double>(p.range.size() * (d_.element + 8));
    Draft::use(task, p.gradients, p.tied ? Role::tied_gradients : Role::gradients, of_gradient);
    Draft::use(task, local, Role::local_sum, of_sum);
  };
  add(TaskKind::accumulate, p.micro_batch, Access::read, starts ? Access::write : Access::update);
  const bool last = p.micro_batch == d_.request.accumulation - 1;
  if (last) add(TaskKind::round, -1, Access::write, Access::read);
  return last;
}

void Gradients::reduce(const Produced& p) {
  const int unit = p.piece.unit;
  const auto entry = std::pair{unit, p.tied};
  if (std::find(open_.begin(), open_.end(), entry) == open_.end()) open_.push_back(entry);
  Sum& sum = sum_of(unit, p.tied);
  if (d_.plan.fast && !accumulate(p)) return;
  const bool starts = sum.newest < 0;
  sum.newest = p.micro_batch;
  if (sum.window < 0)
    sum.window = d_.add_buffer(name_of(unit, p.tied), Kind::gradients, Tier::device, sum_bytes(unit, p.tied), false);
  Task& task = d_.add_task(TaskKind::reduce, LaneId::reduce, unit, p.micro_batch);
  task.part = p.piece.part;
  task.begin = p.range.begin;
  task.end = p.range.end;
  task.tied = p.tied;
  task.first = d_.plan.fast || p.micro_batch == 0;
  // Every rank's pieces of what this rank owns, onto its sum.
  task.cost.bytes = static_cast<double>(p.range.size() * d_.element + p.range.size() * 8 / at(d_.request.ranks));
  Draft::use(task, p.gradients, p.tied ? Role::tied_gradients : Role::gradients, Access::read);
  if (!d_.single()) {
    // A part may lie in one rank's shard, which then receives it from everyone: it travels bit by bit, so that what
    // is received at once is no more than the part.
    const std::size_t ranks = at(d_.request.ranks), shard = d_.layout(p.tied ? 0 : unit).shard;
    task.at_once = p.piece.part < 0 ? p.range.size() : up(p.range.size(), ranks * kShardAlignment) / ranks;
    Draft::use(task,
               d_.add_buffer(d_.text_of("staging of", p.piece), Kind::staging, Tier::device,
                             ranks * std::min(shard, task.at_once) * d_.element, false),
               Role::staging, Access::write);
    const auto pieces = Draft::pieces_of(p.range, shard, d_.request.ranks);
    d_.plan.comm_bytes.all_to_all += (p.range.size() - pieces.of_rank0) * d_.element;
    task.cost.sent_bytes = static_cast<double>((p.range.size() - pieces.least) * d_.element);
  }
  Draft::use(task, sum.window, p.tied ? Role::tied_sum : Role::sum, starts ? Access::write : Access::update);
}

std::vector<Gradients::Source> Gradients::of(int unit, std::size_t begin, std::size_t end) const {
  const auto place = [](const Sum& sum) { return sum.home >= 0 ? sum.home : sum.window; };
  const Sum& sum = sums_[at(unit)];
  if (has_sums_) return {{Role::sum, {place(sum), begin * sizeof(float), (end - begin) * sizeof(float)}}};
  std::vector<Source> sources{{Role::gradients, {place(sum), begin * d_.element, (end - begin) * d_.element}}};
  const std::size_t shared = unit == 0 ? std::min(end, d_.plan.layout.tied) : 0;
  if (begin < shared)
    sources.push_back({Role::tied_gradients, {place(tied_sum_), begin * d_.element, (shared - begin) * d_.element}});
  return sources;
}

}  // namespace strata::runtime

#include "runtime/run/reports/stage_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/index.h"

namespace strata::runtime {

StageTraces::StageTraces(std::span<const StepPlan* const> stages, const models::Model& model)
    : stages_(stages.begin(), stages.end()), ranks_of_stage_(stages[0]->mesh().world / stages[0]->mesh().stages) {
  for (const StepPlan* const plan : stages_) traces_.emplace_back(*plan, model);
  // The n-th message from one stage to another in a lane is the n-th that the other receives there (find_mismatch).
  using Way = std::tuple<std::size_t, std::size_t, LaneId>;  // from, to
  std::map<Way, std::vector<std::size_t>> received;
  std::map<Way, std::size_t> sent;
  const auto for_messages = [&](TaskKind kind, auto&& f) {
    for (std::size_t s = 0; s < stages_.size() && stages_.size() > 1; ++s)
      for (std::size_t t = 0; t < stages_[s]->tasks.size(); ++t)
        if (const Task& task = stages_[s]->tasks[t]; task.kind == kind) f(s, index(task.peer), task.lane, t);
  };
  for_messages(TaskKind::receive, [&](std::size_t stage, std::size_t peer, LaneId lane, std::size_t task) {
    received[{peer, stage, lane}].push_back(task);
  });
  for_messages(TaskKind::send, [&](std::size_t stage, std::size_t peer, LaneId lane, std::size_t task) {
    const Way way{stage, peer, lane};
    messages_.push_back({stage, task, peer, received[way].at(sent[way]++)});
  });
}

std::string StageTraces::step(std::int64_t number, const std::map<int, std::span<const Span>>& ranks,
                              std::int64_t zero) {
  std::string text;
  for (const auto& [rank, spans] : ranks) text += of(rank).step(rank, number, spans, zero);
  for (const Message& message : messages_)
    for (int r = 0; r < ranks_of_stage_; ++r) {
      const int from = static_cast<int>(message.from) * ranks_of_stage_ + r;
      const int to = static_cast<int>(message.to) * ranks_of_stage_ + r;
      const auto sender = ranks.find(from), receiver = ranks.find(to);
      if (sender == ranks.end() || receiver == ranks.end()) continue;
      const LaneId lane = stages_[message.from]->tasks[message.sent].lane;
      text +=
          of(from).message({from, lane, sender->second[message.sent]}, {to, lane, receiver->second[message.received]});
    }
  return text;
}

std::string planned_trace(std::span<const StepPlan* const> stages, const models::Model& model,
                          std::span<const std::vector<Span>> spans) {
  const Mesh mesh = stages[0]->mesh();
  StageTraces traces(stages, model);
  TraceHead head{"planned", mesh.world, {}, {}, "simulated"};
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const int rank = mesh.rank_of(0, 0, stages[s]->stage), ranks = mesh.world / mesh.stages;
    std::string name = fmt::format("rank {}, planned", rank);
    if (mesh.stages > 1) name = fmt::format("stage {}: {}", s, name);
    if (ranks > 1) name += fmt::format(": all {} ranks{} alike", ranks, mesh.stages > 1 ? " of the stage" : "");
    head.traced.push_back({rank, name, &traces.of(rank)});
    zero = std::min(zero, extent_of(*stages[s], spans[s]).begin);
  }
  std::map<int, std::span<const Span>> by_rank;
  for (std::size_t s = 0; s < stages.size(); ++s) by_rank[head.traced[s].rank] = spans[s];
  return Trace::begin(head) + traces.step(0, by_rank, zero) + Trace::end();
}

}  // namespace strata::runtime

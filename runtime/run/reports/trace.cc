#include "runtime/run/reports/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/index.h"
#include "base/json/json_writer.h"
#include "runtime/forecast/simulator.h"

namespace strata::runtime {

namespace {

// The row above the lanes, with one slice per step.
constexpr std::size_t kStepRow = kTrainingLanes;

bool ran(const Span& span) {
  return span.end != 0;
}

// Work of the host between steps and for checkpoints has no row.
bool is_shown(const Task& task) {
  return static_cast<std::size_t>(task.lane) < kTrainingLanes;
}

// The format counts in microseconds; this keeps nanoseconds.
std::string microseconds(std::int64_t ns) {
  const std::int64_t whole = ns < 0 ? -ns : ns;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", whole / 1000, whole % 1000);
}

// The bytes that a task costs in the simulator, without those that are zero.
JsonObject cost_json(const Cost& cost) {
  JsonObject out;
  for (const auto& [name, bytes] : {std::pair{"memory_bytes", cost.bytes},
                                    {"sent_bytes", cost.sent_bytes},
                                    {"host_bytes", cost.host_bytes},
                                    {"read_bytes", cost.read_bytes},
                                    {"written_bytes", cost.written_bytes}})
    if (bytes > 0) out.add(name, Decimals{bytes, 0});
  return out;
}

std::string name_event(std::string_view of, const JsonObject& row, const JsonObject& args) {
  return JsonObject().add("ph", "M").add_all(row).add("name", of).add("args", args).text();
}

void add_event(std::string& text, const JsonObject& event) {
  text += ",\n" + event.text();
}

}  // namespace

Trace::Trace(const StepPlan& plan, const models::Model& model) : plan_(plan) {
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    const auto lane = static_cast<std::size_t>(task.lane);
    used_[lane] = true;
    for (const int wait : task.waits) crosses_ = crosses_ || index(wait) >= t;
    tasks_.push_back(JsonObject()
                         .add("tid", lane)
                         .add("name", name_of(task, model))
                         .add("args", JsonObject().add("task", t).add_all(cost_json(task.cost))));
  }
  for (const Buffer& buffer : plan.buffers) {
    const auto tier = static_cast<std::size_t>(buffer.tier), kind = static_cast<std::size_t>(buffer.kind);
    has_[tier][kind] = true;
    if (buffer.persistent) lasting_[tier][kind] += buffer.bytes;
  }
}

std::string Trace::begin(const TraceHead& head) {
  const JsonObject other = JsonObject()
                               .add("trace", head.kind)
                               .add("ranks", head.ranks)
                               .add("ranks_traced", head.traced.size())
                               .add("steps", JsonArray().add_all(head.steps))
                               .add("clocks", head.clocks);
  // end() closes the list of events and the object.
  std::string text =
      "{" +
      JsonObject().add("displayTimeUnit", "ms").add("otherData", other).add("traceEvents", JsonText{"[\n"}).members();
  std::string_view separator = "";
  const auto add = [&](const std::string& event) {
    text += separator;
    text += event;
    separator = ",\n";
  };
  for (const TracedRank& one : head.traced) {
    const JsonObject process = JsonObject().add("pid", one.rank);
    add(name_event("process_name", process, JsonObject().add("name", one.name)));
    add(name_event("process_sort_index", process, JsonObject().add("sort_index", one.rank)));
    for (std::size_t row = 0; row <= kStepRow; ++row) {
      if (row != kStepRow && !one.trace->used_[row]) continue;
      const JsonObject thread = JsonObject(process).add("tid", row);
      add(name_event("thread_name", thread, JsonObject().add("name", row == kStepRow ? "step" : kLaneNames[row])));
      add(name_event("thread_sort_index", thread, JsonObject().add("sort_index", row == kStepRow ? 0 : row + 1)));
    }
  }
  return text;
}

std::string Trace::step(int rank, std::int64_t number, std::span<const Span> spans, std::int64_t zero) {
  STRATA_CHECK_EQ(spans.size(), plan_.tasks.size());
  zero_ = zero;
  std::string text;
  if (!ran(extent_of(plan_, spans))) return text;
  add_slices(text, rank, number, spans);
  add_arrows(text, rank, number, spans);
  add_memory(text, rank, spans);
  return text;
}

void Trace::add_slices(std::string& text, int rank, std::int64_t number, std::span<const Span> spans) const {
  const Span all = extent_of(plan_, spans);
  const auto add = [&](const Span& span, const JsonObject& what) {
    add_event(text, JsonObject()
                        .add("ph", "X")
                        .add("ts", JsonText{microseconds(span.begin - zero_)})
                        .add("dur", JsonText{microseconds(span.end - span.begin)})
                        .add("pid", rank)
                        .add_all(what));
  };
  add(all, JsonObject().add("tid", kStepRow).add("name", number > 0 ? fmt::format("step {}", number) : "step"));
  for (std::size_t t = 0; t < spans.size(); ++t)
    if (ran(spans[t]) && is_shown(plan_.tasks[t])) add(spans[t], tasks_[t]);
}

// Arrows from each task that another waited for, in this step or the previous one: from its end to the beginning of the
// other.
void Trace::add_arrows(std::string& text, int rank, std::int64_t number, std::span<const Span> spans) {
  if (crosses_ && before_.size() <= index(rank)) before_.resize(index(rank) + 1);
  Before* before = crosses_ ? &before_[index(rank)] : nullptr;
  const bool follows = before && before->number == number - 1 && number > 0;
  for (std::size_t t = 0; t < spans.size(); ++t) {
    const Task& task = plan_.tasks[t];
    if (!ran(spans[t]) || !is_shown(task)) continue;
    for (const int wait : task.waits) {
      const bool across = index(wait) >= t;
      if (!is_shown(plan_.tasks[index(wait)]) || (across && !follows)) continue;
      const Span& earlier = across ? before->spans[index(wait)] : spans[index(wait)];
      // An arrow belongs to the slice around its time, and a slice's end is outside of it.
      const std::int64_t begin = std::max(earlier.begin, std::min(earlier.end - 1, spans[t].begin));
      if (ran(earlier))
        add_arrow(text, {rank, plan_.tasks[index(wait)].lane, earlier}, begin, {rank, task.lane, spans[t]},
                  spans[t].begin);
    }
  }
  if (before) *before = {number, {spans.begin(), spans.end()}};
}

std::string Trace::message(const ExecutedTask& sent, const ExecutedTask& received) {
  std::string text;
  // A receive begins when it is posted and ends with the message. Clocks of two nodes may differ by more than this
  // duration.
  const std::int64_t end = std::max(received.span.begin, received.span.end - 1);
  const std::int64_t begin = std::max(sent.span.begin, std::min(sent.span.end - 1, end));
  if (ran(sent.span) && ran(received.span) && begin <= end) add_arrow(text, sent, begin, received, end);
  return text;
}

void Trace::add_arrow(std::string& text, const ExecutedTask& from, std::int64_t begin, const ExecutedTask& to,
                      std::int64_t end) {
  // Unique in the text of all stages.
  const std::uint64_t id = ++arrows_ * static_cast<std::uint64_t>(plan_.mesh().stages) + index(plan_.stage);
  const auto add = [&](const JsonObject& phase, const ExecutedTask& ran, std::int64_t at) {
    add_event(text, JsonObject(phase)
                        .add("ts", JsonText{microseconds(at - zero_)})
                        .add("pid", ran.rank)
                        .add("tid", static_cast<int>(ran.lane))
                        .add("id", id)
                        .add("cat", "wait")
                        .add("name", "wait"));
  };
  add(JsonObject().add("ph", "s"), from, begin);
  add(JsonObject().add("ph", "f").add("bp", "e"), to, end);
}

// A buffer lives from the beginning of the first to the end of the last task that uses it.
void Trace::add_memory(std::string& text, int rank, std::span<const Span> spans) const {
  std::vector<Span> lives(plan_.buffers.size(), {std::numeric_limits<std::int64_t>::max(), 0});
  for (std::size_t t = 0; t < spans.size(); ++t) {
    if (!ran(spans[t]) || !is_shown(plan_.tasks[t])) continue;
    for (const Use& use : plan_.tasks[t].uses) {
      Span& life = lives[index(use.buffer)];
      life = {std::min(life.begin, spans[t].begin), std::max(life.end, spans[t].end)};
    }
  }
  struct Change {
    std::int64_t at;
    std::size_t buffer;
    bool starts;
  };
  std::vector<Change> changes;
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (plan_.buffers[b].persistent || !ran(lives[b])) continue;
    changes.push_back({lives[b].begin, b, true});
    changes.push_back({lives[b].end, b, false});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });

  Live live = lasting_;
  const std::int64_t begin = extent_of(plan_, spans).begin;
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (plan_.memory[tier].peak > 0) add_counter(text, rank, tier, begin, live);
  // Changes at one instant are combined into one event per tier, so that buffers that end and begin there do not add
  // up.
  for (auto change = changes.begin(); change != changes.end();) {
    const Live earlier = live;
    const std::int64_t at = change->at;
    for (; change != changes.end() && change->at == at; ++change) {
      const Buffer& buffer = plan_.buffers[change->buffer];
      std::size_t& bytes = live[static_cast<std::size_t>(buffer.tier)][static_cast<std::size_t>(buffer.kind)];
      bytes = change->starts ? bytes + buffer.bytes : bytes - buffer.bytes;
    }
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      if (live[tier] != earlier[tier]) add_counter(text, rank, tier, at, live);
  }
}

void Trace::add_counter(std::string& text, int rank, std::size_t tier, std::int64_t at, const Live& live) const {
  JsonObject kinds;
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    if (has_[tier][kind]) kinds.add(kKindNames[kind], live[tier][kind]);
  add_event(text, JsonObject()
                      .add("ph", "C")
                      .add("ts", JsonText{microseconds(at - zero_)})
                      .add("pid", rank)
                      .add("name", fmt::format("{} bytes", kTierNames[tier]))
                      .add("args", kinds));
}

Span extent_of(const StepPlan& plan, std::span<const Span> spans) {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  for (std::size_t t = 0; t < spans.size(); ++t)
    if (ran(spans[t]) && is_shown(plan.tasks[t])) begin = std::min(begin, spans[t].begin);
  const int last = last_awaited(plan, spans);
  return last < 0 || !ran(spans[index(last)]) ? Span{} : Span{begin, spans[index(last)].end};
}

StageTraces::StageTraces(std::span<const StepPlan* const> stages, const models::Model& model)
    : stages_(stages.begin(), stages.end()), mesh_(stages[0]->mesh()) {
  for (const StepPlan* const plan : stages_) traces_.emplace_back(*plan, model);
  // The n-th message from one stage to another in a lane is the n-th that the other receives there (find_mismatch).
  using Channel = std::tuple<std::size_t, std::size_t, LaneId>;  // from, to
  std::map<Channel, std::vector<std::size_t>> received;
  std::map<Channel, std::size_t> sent;
  const auto for_messages = [&](MessageEnd end, auto&& f) {
    for (std::size_t s = 0; s < stages_.size() && stages_.size() > 1; ++s)
      for (std::size_t t = 0; t < stages_[s]->tasks.size(); ++t)
        if (const Task& task = stages_[s]->tasks[t]; traits_of(task.kind).message == end)
          f(s, index(task.peer), task.lane, t);
  };
  for_messages(MessageEnd::receiver, [&](std::size_t stage, std::size_t peer, LaneId lane, std::size_t task) {
    received[{peer, stage, lane}].push_back(task);
  });
  for_messages(MessageEnd::sender, [&](std::size_t stage, std::size_t peer, LaneId lane, std::size_t task) {
    const Channel way{stage, peer, lane};
    messages_.push_back({stage, task, peer, received[way].at(sent[way]++)});
  });
}

std::string StageTraces::step(std::int64_t number, const std::map<int, std::span<const Span>>& ranks,
                              std::int64_t zero) {
  std::string text;
  for (const auto& [rank, spans] : ranks) text += of(rank).step(rank, number, spans, zero);
  for (const Message& message : messages_)
    for (int r = 0; r < mesh_.ranks_per_stage(); ++r) {
      const Coordinates at = mesh_.at(r);
      const int from = mesh_.rank_of(at.data, at.tensor, static_cast<int>(message.from));
      const int to = mesh_.rank_of(at.data, at.tensor, static_cast<int>(message.to));
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
    const int rank = mesh.rank_of(0, 0, stages[s]->stage), ranks = mesh.ranks_per_stage();
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

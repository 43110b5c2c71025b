#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::tests {

// A trace as a reader sees it. Times are in ns.
struct TraceEvents {
  using Row = std::pair<std::int64_t, std::int64_t>;  // pid, tid
  struct Slice {
    Row row;
    std::int64_t begin, end;
    std::string name;
    std::int64_t task;                          // -1: a step
    std::map<std::string, std::int64_t> bytes;  // the key: the kind of bytes
    bool around(std::int64_t at) const { return begin <= at && (at < end || at == begin); }
  };
  struct Arrow {
    Row from, to;
    std::int64_t begin, end;
  };
  struct Counter {
    std::int64_t pid;
    std::string name;
    std::int64_t at, total;
  };
  std::map<std::int64_t, std::string> processes;
  std::map<Row, std::string> rows;
  std::vector<Slice> slices;
  std::vector<Arrow> arrows;
  std::vector<Counter> counters;
  std::vector<std::int64_t> steps;
  std::int64_t ranks = 0;
  std::string kind;

  // The tasks of one rank.
  std::vector<Slice> tasks_of(std::int64_t pid) const {
    std::vector<Slice> out;
    for (const Slice& slice : slices)
      if (slice.row.first == pid && slice.task >= 0) out.push_back(slice);
    return out;
  }
};

// Reads a trace, and expects the Trace Event Format's rules: the fields of each phase, slices of a row one after
// another, an arrow's ends in order of time and each in a slice of its row, counters in order of time.
inline TraceEvents read_trace(const std::string& text) {
  TraceEvents out;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error = parser.parse(text).get(root);
  EXPECT_EQ(error, simdjson::SUCCESS);
  if (error) return out;
  const auto nanoseconds = [](simdjson::dom::element value) {
    return static_cast<std::int64_t>(std::llround(double(value) * 1e3));
  };
  out.kind = std::string_view(root["otherData"]["trace"]);
  out.ranks = root["otherData"]["ranks"];
  for (const std::int64_t step : simdjson::dom::array(root["otherData"]["steps"])) out.steps.push_back(step);
  std::map<std::int64_t, std::pair<TraceEvents::Row, std::int64_t>> begun;
  for (const simdjson::dom::element event : simdjson::dom::array(root["traceEvents"])) {
    const std::string_view phase = event["ph"], name = event["name"];
    const std::int64_t pid = event["pid"];
    if (phase == "M") {
      if (name == "process_name") out.processes[pid] = std::string_view(event["args"]["name"]);
      if (name == "thread_name") out.rows[{pid, event["tid"]}] = std::string_view(event["args"]["name"]);
      continue;
    }
    const std::int64_t at = nanoseconds(event["ts"]);
    if (phase == "C") {
      std::int64_t total = 0;
      for (const auto series : simdjson::dom::object(event["args"])) {
        EXPECT_GE(std::int64_t(series.value), 0);
        total += std::int64_t(series.value);
      }
      out.counters.push_back({pid, std::string(name), at, total});
      continue;
    }
    const TraceEvents::Row row{pid, event["tid"]};
    EXPECT_TRUE(out.processes.contains(pid) && out.rows.contains(row)) << simdjson::minify(event);
    if (phase == "X") {
      const std::int64_t duration = nanoseconds(event["dur"]);
      EXPECT_GE(duration, 0);
      TraceEvents::Slice slice{row, at, at + duration, std::string(name), -1, {}};
      simdjson::dom::object args;
      if (event["args"].get(args) == simdjson::SUCCESS)
        for (const auto arg : args)
          (arg.key == "task" ? slice.task : slice.bytes[std::string(arg.key)]) = std::int64_t(arg.value);
      out.slices.push_back(std::move(slice));
    } else if (phase == "s") {
      EXPECT_EQ(std::string_view(event["cat"]), "wait");
      EXPECT_TRUE(begun.emplace(std::int64_t(event["id"]), std::pair(row, at)).second) << simdjson::minify(event);
    } else {
      EXPECT_EQ(phase, "f");
      EXPECT_EQ(std::string_view(event["cat"]), "wait");
      EXPECT_EQ(std::string_view(event["bp"]), "e");
      const auto begin = begun.find(event["id"]);
      EXPECT_NE(begin, begun.end()) << simdjson::minify(event);
      if (begin == begun.end()) continue;
      EXPECT_LE(begin->second.second, at);
      out.arrows.push_back({begin->second.first, row, begin->second.second, at});
    }
  }
  EXPECT_EQ(begun.size(), out.arrows.size()) << "an arrow ends once, and another begins";

  std::map<TraceEvents::Row, std::vector<TraceEvents::Slice>> by_row;
  for (const auto& slice : out.slices) by_row[slice.row].push_back(slice);
  for (auto& [row, slices] : by_row) {
    std::stable_sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < slices.size(); ++i)
      EXPECT_GE(slices[i].begin, slices[i - 1].end) << slices[i - 1].name << " and " << slices[i].name;
  }
  const auto in_a_slice = [&](const TraceEvents::Row& row, std::int64_t at) {
    const auto& slices = by_row[row];
    return std::any_of(slices.begin(), slices.end(), [&](const auto& slice) { return slice.around(at); });
  };
  for (const auto& arrow : out.arrows)
    EXPECT_TRUE(in_a_slice(arrow.from, arrow.begin) && in_a_slice(arrow.to, arrow.end))
        << fmt::format("lane {} to {} at {}", arrow.from.second, arrow.to.second, arrow.end);
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> newest;
  for (const auto& counter : out.counters) {
    const auto [last, is_new] = newest.emplace(std::pair(counter.pid, counter.name), counter.at);
    EXPECT_TRUE(is_new || last->second <= counter.at) << counter.name;
    last->second = counter.at;
  }
  return out;
}

}  // namespace strata::tests

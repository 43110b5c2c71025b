#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

RecipeKey trace_steps() {
  const auto range_of = [](const Value& v) -> std::optional<StepRange> {
    StepRange range{};
    if (const auto* step = std::get_if<std::int64_t>(&v.value)) {
      range = {*step, *step};
    } else if (const auto* text = std::get_if<std::string>(&v.value)) {
      const char *begin = text->data(), *end = begin + text->size();
      auto [at, error] = std::from_chars(begin, end, range.first);
      if (error != std::errc{}) return std::nullopt;
      range.last = range.first;
      if (at != end && *at == '-') {
        const auto rest = std::from_chars(at + 1, end, range.last);
        at = rest.ptr;
        error = rest.ec;
      }
      if (error != std::errc{} || at != end) return std::nullopt;
    }
    if (range.first < 1 || range.last < range.first || range.last > kMany) return std::nullopt;
    return range;
  };
  auto set = [range_of](Recipe& recipe, const Value& v, const fs::path&) {
    std::vector<StepRange> steps;
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (list && list->empty()) return false;
    for (const Value& item : list ? *list : std::vector<Value>{v}) {
      const auto range = range_of(item);
      if (!range) return false;
      steps.push_back(*range);
    }
    std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto overlap = [](const auto& a, const auto& b) { return a.last >= b.first; };
    if (std::adjacent_find(steps.begin(), steps.end(), overlap) != steps.end()) return false;
    recipe.report.trace_steps = std::move(steps);
    return true;
  };
  auto text = [](const Recipe& recipe) {
    return recipe.report.trace_steps.empty() ? "none" : steps_text(recipe.report.trace_steps);
  };
  return {"report.trace_steps", "a step from 1, a range \"3-5\", or a list of at least one of these, without overlap",
          "steps in report.trace; each is issued task by task, and the run waits for its last task; default: the last "
          "step",
          set, text};
}

}  // namespace

std::vector<RecipeKey> report_keys() {
  return {
      path("report.dir", STRATA_AT(report.dir),
           "a folder, created if necessary, for all reports below and the recipe, under their usual names"),
      path("report.jsonl", STRATA_AT(report.jsonl), "one line per step"),
      path("report.csv", STRATA_AT(report.csv), "the same as a table"),
      path("report.tensorboard", STRATA_AT(report.tensorboard), "a folder for TensorBoard's event files"),
      integer("report.every", 1, kMany, STRATA_AT(report.every), "steps between lines shown; files have every step"),
      path("report.summary", STRATA_AT(report.summary), "one object at the end"),
      path("report.trace", STRATA_AT(report.trace), "timeline of one step or several, for Perfetto"),
      trace_steps(),
      path("report.machine", STRATA_AT(report.machine),
           "machine file of strata calibrate: its prediction for a step is shown next to the measurement"),
  };
}

}  // namespace strata::runtime

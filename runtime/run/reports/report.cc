#include "runtime/run/reports/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "runtime/forecast/simulator.h"
#include "runtime/recipe/value.h"
#include "text/unicode/utf8.h"

namespace strata::runtime {

std::string json_number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : "null";
}

std::string step_line(const StepReport& r) {
  char hex[64] = "null";
  if (std::isfinite(r.loss)) std::snprintf(hex, sizeof hex, "\"%a\"", r.loss);
  return fmt::format(
      "{{\"step\":{},\"loss\":{},\"loss_hex\":{},\"grad_norm\":{},\"lr\":{},\"loss_scale\":{},\"skipped\":{},"
      "\"tokens\":{},\"step_ms\":{:.3f},\"tokens_per_s\":{:.1f},\"time\":{:.3f},\"epoch\":{},\"labels\":{}}}\n",
      r.step, json_number(r.loss), hex, json_number(r.grad_norm), json_number(r.learning_rate),
      json_number(r.loss_scale), r.skipped, r.tokens, r.step_ms, r.tokens_per_s(), r.time, json_number(r.epoch),
      r.labels);
}

std::string evaluation_line(const EvaluationReport& r) {
  std::string metrics;
  for (const auto& [name, value] : r.metrics) metrics += fmt::format(",\"{}\":{}", name, json_number(value));
  char hex[64] = "null";
  if (std::isfinite(r.loss)) std::snprintf(hex, sizeof hex, "\"%a\"", r.loss);
  return fmt::format(
      "{{\"step\":{},\"eval_loss\":{},\"eval_loss_hex\":{}{},\"eval_tokens\":{},\"eval_sequences\":{},"
      "\"eval_tokens_per_s\":{:.1f},\"best\":{},\"time\":{:.3f}}}\n",
      r.step, json_number(r.loss), hex, metrics, r.tokens, r.sequences, r.tokens_per_s, r.best, r.time);
}

std::string answer_line(std::int64_t step, const Answer& answer) {
  // JSON is UTF-8, and what a model writes need not be.
  const auto utf8 = [](const std::string& text) {
    std::string repaired;
    text::append_repaired(text, repaired);
    return json_string(repaired);
  };
  return fmt::format("{{\"step\":{},\"prompt\":{},\"completion\":{}}}\n", step, utf8(answer.prompt),
                     utf8(answer.completion));
}

std::string memory_json(const Memory& planned, const Memory* measured) {
  const auto kinds = [](const TierMemory& memory) {
    std::string text;
    for (std::size_t k = 0; k < kKinds; ++k)
      text += fmt::format("{}\"{}\":{}", k ? "," : "", kKindNames[k], memory.by_kind[k]);
    return "{" + text + "}";
  };
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    text += fmt::format("{}\"{}\":{{\"planned_peak_bytes\":{}", tier ? "," : "", kTierNames[tier], planned[tier].peak);
    if (measured) text += fmt::format(",\"measured_peak_bytes\":{}", (*measured)[tier].peak);
    text += ",\"by_kind\":" + kinds(measured ? (*measured)[tier] : planned[tier]);
    if (measured) text += ",\"planned_by_kind\":" + kinds(planned[tier]);
    text += "}";
  }
  return "{" + text + "}";
}

std::string comm_json(const comm::CommBytes& b) {
  return fmt::format("{{\"all_gather\":{},\"all_to_all\":{},\"broadcast\":{},\"consensus\":{},\"total\":{}}}",
                     b.all_gather, b.all_to_all, b.broadcast, b.consensus, b.total());
}

std::string exposed_json(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin) {
  const auto exposed = exposed_ms(plan, spans, begin);
  std::string text;
  for (std::size_t lane = 1; lane < kTrainingLanes; ++lane)
    text += fmt::format("{}\"{}\":{:.3f}", lane > 1 ? "," : "", kLaneNames[lane], exposed[lane]);
  return "{" + text + "}";
}

std::string io_json(const IoBytes& bytes) {
  std::string text;
  for (std::size_t tier = 1; tier < kTiers; ++tier)
    text += fmt::format("{}\"{}\":{{\"read\":{},\"written\":{}}}", tier > 1 ? "," : "", kTierNames[tier],
                        bytes.read[tier], bytes.written[tier]);
  return "{" + text + "}";
}

double in_no_task_ms(const Summary& s) {
  return std::max(0.0, s.timed_ms.value_or(0) - sum_of(s.path) * 1e3);
}

std::string summary_json(const StepPlan& plan, const Summary& s) {
  std::string rss;
  std::string compute;
  for (const double ms : s.compute_ms)
    compute += fmt::format("{}{:.3f}", compute.empty() ? "\"ranks_compute_ms\":[" : ",", ms);
  if (!compute.empty()) compute += "],";
  for (const std::uint64_t bytes : s.peak_rss) rss += fmt::format("{}{}", rss.empty() ? "" : ",", bytes);
  std::string checkpoints;
  if (s.checkpoints)
    checkpoints =
        fmt::format("\"checkpoints\":{{\"written\":{},\"bytes\":{},\"held_ms\":{:.3f},\"last_ms\":{:.3f}}},",
                    s.checkpoints->written, s.checkpoints->bytes, s.checkpoints->held_ms, s.checkpoints->last_ms);
  const std::string data = s.data.empty() ? "" : "\"data\":" + s.data + ",";
  std::string best;
  if (s.best)
    best = fmt::format("\"best\":{{\"metric\":\"{}\",\"value\":{},\"step\":{}}},", s.metric, json_number(s.best->value),
                       s.best->step);
  std::string gpu;
  if (s.gpu_before && s.gpu_at_end)
    gpu = fmt::format("\"gpu_memory\":{{\"total_bytes\":{},\"free_before_bytes\":{},\"free_at_end_bytes\":{}}},",
                      s.gpu_at_end->total, s.gpu_before->available, s.gpu_at_end->available);
  std::string path;
  for (std::size_t b = 0; b < s.path.size(); ++b)
    path += fmt::format("{}\"{}\":{:.3f}", b ? "," : "", kBoundNames[b], s.path[b] * 1e3);
  const double tflops = s.tokens_per_s * s.flops_per_token / 1e12;
  return fmt::format(
      "{{\"steps\":{},\"skipped_steps\":{},\"tokens\":{},\"tokens_per_s\":{},\"model_flops_per_token\":{},\"tflops\":{}"
      ",\"mfu\":null,"
      "\"weights_hash\":\"{}\",\"ranks\":{},\"memory\":{},\"process_peak_rss_bytes\":[{}],{}\"comm_bytes\":"
      "{},\"io_bytes\":{},\"exposed_ms\":{},\"exposed_step\":{},\"exposed_step_ms\":{},\"critical_path_ms\":{{{}}},"
      "\"in_no_task_ms\":{:.3f},"
      "\"graph_steps\":{},\"validate_ms\":{:.3f},{}{}{}\"exit\":{}"
      "}}\n",
      s.steps, s.skipped_steps, s.tokens, json_number(s.tokens_per_s), json_number(s.flops_per_token),
      json_number(tflops), s.weights_hash, plan.ranks, memory_json(plan.memory, &s.measured), rss, gpu + compute,
      comm_json(s.comm_bytes), io_json(s.io_bytes), exposed_json(plan, s.spans), s.timed_step,
      json_number(s.timed_ms.value_or(std::numeric_limits<double>::quiet_NaN())), path, in_no_task_ms(s), s.graph_steps,
      s.validate_ms, checkpoints, best, data, s.exit);
}

}  // namespace strata::runtime

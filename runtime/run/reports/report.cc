#include "runtime/run/reports/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "comm/exchange_values.h"
#include "runtime/forecast/simulator.h"
#include "text/unicode/utf8.h"

namespace strata::runtime {

namespace {

// The bits of a loss in the format of printf's %a.
JsonObject& add_bits(JsonObject& line, std::string_view name, double loss) {
  if (!std::isfinite(loss)) return line.add(name, JsonText{"null"});
  char hex[64];
  std::snprintf(hex, sizeof hex, "%a", loss);
  return line.add(name, hex);
}

}  // namespace

std::string step_line(const StepReport& r) {
  JsonObject line;
  line.add("step", r.step).add("loss", r.loss);
  add_bits(line, "loss_hex", r.loss)
      .add("grad_norm", r.grad_norm)
      .add("lr", r.learning_rate)
      .add("loss_scale", r.loss_scale)
      .add("skipped", r.skipped)
      .add("tokens", r.tokens)
      .add("step_ms", Decimals{r.step_ms, 3})
      .add("tokens_per_s", Decimals{r.tokens_per_s(), 1})
      .add("time", Decimals{r.time, 3})
      .add("epoch", r.epoch)
      .add("labels", r.labels);
  return line.text() + "\n";
}

std::string evaluation_line(const EvaluationReport& r) {
  JsonObject line;
  line.add("step", r.step).add("eval_loss", r.loss);
  add_bits(line, "eval_loss_hex", r.loss);
  for (const auto& [name, value] : r.metrics) line.add(name, value);
  line.add("eval_tokens", r.tokens)
      .add("eval_sequences", r.sequences)
      .add("eval_tokens_per_s", Decimals{r.tokens_per_s, 1})
      .add("best", r.best)
      .add("time", Decimals{r.time, 3});
  return line.text() + "\n";
}

std::string answer_line(std::int64_t step, const Answer& answer) {
  // A model's output need not be UTF-8, but JSON is.
  const auto utf8 = [](const std::string& text) {
    std::string repaired;
    text::append_repaired(text, repaired);
    return repaired;
  };
  JsonObject line;
  line.add("step", step).add("prompt", utf8(answer.prompt)).add("completion", utf8(answer.completion));
  return line.text() + "\n";
}

std::string memory_json(const Memory& planned, const Memory* measured) {
  const auto kinds = [](const TierMemory& memory) {
    JsonObject bytes;
    for (std::size_t k = 0; k < kKinds; ++k) bytes.add(kKindNames[k], memory.by_kind[k]);
    return bytes;
  };
  JsonObject tiers;
  for (std::size_t t = 0; t < kTiers; ++t) {
    JsonObject tier;
    tier.add("planned_peak_bytes", planned[t].peak);
    if (measured) tier.add("measured_peak_bytes", (*measured)[t].peak);
    tier.add("by_kind", kinds(measured ? (*measured)[t] : planned[t]));
    if (measured) tier.add("planned_by_kind", kinds(planned[t]));
    tiers.add(kTierNames[t], tier);
  }
  return tiers.text();
}

std::string comm_json(const comm::CommBytes& b) {
  return JsonObject()
      .add("all_gather", b.all_gather)
      .add("all_to_all", b.all_to_all)
      .add("broadcast", b.broadcast)
      .add("consensus", b.consensus)
      .add("point_to_point", b.point_to_point)
      .add("total", b.total())
      .add("between_nodes", b.between_nodes)
      .text();
}

std::string mesh_json(const Mesh& mesh) {
  return JsonObject()
      .add("data", mesh.data())
      .add("tensor", mesh.tensor)
      .add("stages", mesh.stages)
      .add("node", mesh.node > 0 ? std::optional(mesh.node) : std::nullopt)
      .text();
}

std::string exposed_json(const StepPlan& plan, std::span<const Span> spans, std::int64_t begin) {
  const auto exposed = exposed_ms(plan, spans, begin);
  JsonObject lanes;
  for (std::size_t lane = 1; lane < kTrainingLanes; ++lane) lanes.add(kLaneNames[lane], Decimals{exposed[lane], 3});
  return lanes.text();
}

std::string io_json(const IoBytes& bytes) {
  JsonObject tiers;
  for (std::size_t tier = 1; tier < kTiers; ++tier)
    tiers.add(kTierNames[tier], JsonObject().add("read", bytes.read[tier]).add("written", bytes.written[tier]));
  return tiers.text();
}

double in_no_task_ms(const Summary& s) {
  return std::max(0.0, s.timed_ms.value_or(0) - sum_of(s.path) * 1e3);
}

std::vector<StageFigures> figures_of_stages(const StageFigures& mine, const Mesh& mesh, comm::World& world) {
  const std::vector<StageFigures> all = comm::exchange_value(world, mine);
  std::vector<StageFigures> out;
  for (int stage = 0; stage < mesh.stages; ++stage)
    out.push_back(all[static_cast<std::size_t>(mesh.rank_of(0, 0, stage))]);
  return out;
}

const StageFigures& largest_of(std::span<const StageFigures> stages) {
  const auto peak = [](const StageFigures& s) { return s.planned[static_cast<std::size_t>(Tier::device)].peak; };
  return *std::ranges::max_element(stages, {}, peak);
}

namespace {

JsonArray stages_json(const StepPlan& plan, const models::Model& model, std::span<const StageFigures> stages) {
  JsonArray out;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageFigures& stage = stages[i];
    JsonArray units;
    for (const int unit : units_of_stage(plan.pieces, plan.mesh().stages, static_cast<int>(i)).all())
      units.add(model.units[static_cast<std::size_t>(unit)]->name());
    const auto device = static_cast<std::size_t>(Tier::device);
    out.add(JsonObject()
                .add("units", units)
                .add("planned_peak_bytes", stage.planned[device].peak)
                .add("measured_peak_bytes", stage.measured[device].peak)
                .add("idle_share", Decimals{stage.idle_share, 4}));
  }
  return out;
}

}  // namespace

std::string summary_json(const StepPlan& plan, const models::Model& model, const Summary& s) {
  const StageFigures& largest = largest_of(s.stages);
  JsonObject out;
  out.add("steps", s.steps)
      .add("skipped_steps", s.skipped_steps)
      .add("tokens", s.tokens)
      .add("tokens_per_s", s.tokens_per_s)
      .add("model_flops_per_token", s.flops_per_token)
      .add("tflops", s.tokens_per_s * s.flops_per_token / 1e12)
      .add("mfu", JsonText{"null"})
      .add("trained_parameters", s.trained_parameters)
      .add("weights_hash", s.weights_hash);
  if (!s.base_hash.empty()) out.add("base_hash", s.base_hash);
  out.add("ranks", plan.ranks())
      .add("mesh", JsonText{mesh_json(plan.mesh())})
      .add("memory", JsonText{memory_json(largest.planned, &largest.measured)})
      .add("memory_rank", largest.rank)
      .add("stages", stages_json(plan, model, s.stages))
      .add("process_peak_rss_bytes", JsonArray().add_all(s.peak_rss));
  if (s.gpu_before && s.gpu_at_end)
    out.add("gpu_memory", JsonObject()
                              .add("total_bytes", s.gpu_at_end->total)
                              .add("free_before_bytes", s.gpu_before->available)
                              .add("free_at_end_bytes", s.gpu_at_end->available));
  if (!s.compute_ms.empty()) {
    JsonArray ranks;
    for (const double ms : s.compute_ms) ranks.add(Decimals{ms, 3});
    out.add("ranks_compute_ms", ranks);
  }
  JsonObject path;
  for (std::size_t b = 0; b < s.path.size(); ++b) path.add(kBoundNames[b], Decimals{s.path[b] * 1e3, 3});
  out.add("comm_bytes", JsonText{comm_json(largest.comm_bytes)})
      .add("io_bytes", JsonText{io_json(largest.io_bytes)})
      .add("exposed_ms", JsonText{exposed_json(plan, s.spans)})
      .add("exposed_step", s.timed_step)
      .add("exposed_step_ms", s.timed_ms.value_or(std::numeric_limits<double>::quiet_NaN()))
      .add("critical_path_ms", path)
      .add("in_no_task_ms", Decimals{in_no_task_ms(s), 3})
      .add("graph_steps", s.graph_steps)
      .add("validate_ms", Decimals{s.validate_ms, 3});
  if (s.checkpoints)
    out.add("checkpoints", JsonObject()
                               .add("written", s.checkpoints->written)
                               .add("bytes", s.checkpoints->bytes)
                               .add("held_ms", Decimals{s.checkpoints->held_ms, 3})
                               .add("last_ms", Decimals{s.checkpoints->last_ms, 3}));
  if (s.best)
    out.add("best", JsonObject().add("metric", s.metric).add("value", s.best->value).add("step", s.best->step));
  if (!s.data.empty()) out.add("data", JsonText{s.data});
  return out.add("exit", s.exit).text() + "\n";
}

}  // namespace strata::runtime

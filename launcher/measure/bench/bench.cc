#include "launcher/measure/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "device/ops/products/product.h"
#include "device/ops/step/gradient_sum.h"
#include "launcher/measure/bench/bench_lane.h"
#include "launcher/median.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/planned_run.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/screen/printable.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/run/reports/report.h"
#include "runtime/weights/weights.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;
using device::DType;
using device::View;

// The time of one product of this shape on its own, in seconds.
double product_seconds(const device::ProductShape& s, int threads) {
  const device::Product product({}, s);
  const auto extent = [](std::int64_t rows, std::int64_t row) { return static_cast<std::size_t>(rows * row); };
  const std::size_t a = extent(s.transpose_a ? s.k : s.m, s.lda), b = extent(s.transpose_b ? s.n : s.k, s.ldb);
  const std::size_t c = extent(s.m, s.ldc), workspace = product.workspace_bytes(threads) / 4 + 1;
  BenchLane timed(threads, 4 * (a + b + c + workspace + static_cast<std::size_t>(s.n)) + (5u << 12));
  const View va = timed.take(a, s.in), vb = timed.take(b, s.in), vc = timed.take(c, s.out);
  const View bias = s.bias ? timed.take(static_cast<std::size_t>(s.n), s.in) : View{};
  const View scratch = timed.take(workspace, DType::fp32);
  return timed.time(3, [&] { product.run(timed.lane(), va, vb, bias, vc, scratch); });
}

// Bandwidth in GB/s of y += x over arrays far larger than the caches, at 12 bytes per element.
double triad_gb_per_s(int threads) {
  constexpr std::size_t kElements = 64u << 20;
  BenchLane timed(threads, 2 * kElements * sizeof(float));
  const View x = timed.take(kElements, DType::fp32), y = timed.take(kElements, DType::fp32);
  return 12.0 * kElements / timed.time(5, [&] { add(timed.lane(), x, y); }) / 1e9;
}

// A lower bound for the step: the products of the step, timed on their own with the same library, and the bytes of the
// optimizer over the measured bandwidth.
struct Floor {
  double products_s = 0, optimizer_s = 0, triad = 0;
};

Floor floor_of(const runtime::Job& job, int threads) {
  std::vector<device::ProductShape> all;
  for (const auto& unit : job.model->units) unit->list_products(all);
  Floor floor;
  std::vector<std::pair<device::ProductShape, int>> distinct;
  for (device::ProductShape shape : all) {
    shape.epilogue = device::Epilogue::none;
    const auto known = std::find_if(distinct.begin(), distinct.end(), [&](const auto& d) { return d.first == shape; });
    if (known == distinct.end())
      distinct.emplace_back(shape, 1);
    else
      ++known->second;
  }
  for (const auto& [shape, count] : distinct)
    floor.products_s += product_seconds(shape, threads) * count * job.plan.accumulation;
  // The optimizer makes a single pass: gradient in, fp32 state in and out, parameter out.
  const double element = static_cast<double>(size_of(job.plan.dtype));
  const double gradient = job.plan.has_sums() ? 4 : element;
  const double per_parameter = gradient + 24 + (job.plan.dtype == DType::fp32 ? 0 : element);
  double parameters = 0;
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit)
    parameters += static_cast<double>(job.plan.parts_of(unit).size());
  floor.triad = triad_gb_per_s(threads);
  floor.optimizer_s = parameters * per_parameter / (floor.triad * 1e9);
  return floor;
}

void fill_random_tokens(runtime::Executor& executor, const runtime::Job& job, int rank) {
  std::uint64_t state = 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank);
  for (int g = 0; g < job.plan.accumulation; ++g) {
    const models::BatchRows batch = executor.batch(g);
    const auto seq = static_cast<std::size_t>(job.recipe.data.seq_len);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      batch.tokens[i] = static_cast<std::uint32_t>((state >> 33) % job.model->vocabulary);
      batch.labels[i] = static_cast<std::int32_t>((state >> 20) % job.model->vocabulary);
      batch.positions[i] = static_cast<std::uint32_t>(i % seq);
      batch.documents[i] = {0, static_cast<std::uint32_t>(seq)};
      if (!batch.types.empty()) batch.types[i] = 0;
    }
  }
}

struct StepFigures {
  double step_s;
  std::array<double, runtime::kTaskKinds> by_kind_ms{};
  double waited_ms = 0;  // by the compute lane
};

StepFigures time_steps(runtime::Executor& executor, const runtime::Job& job, int steps) {
  device::StepScalars scalars{};
  scalars.loss_gradient = 1.0f / static_cast<float>(job.plan.tokens);
  scalars.unscale = 1;
  scalars.learning_rate = 1e-4f;
  scalars.bias_correction1 = 0.1f;
  scalars.bias_correction2 = 0.05f;
  scalars.max_grad_norm = 1;
  const auto step = [&] {
    scalars.first_micro_batch += job.plan.micro_batches();
    const auto start = std::chrono::steady_clock::now();
    (void)executor.step(scalars, false);
    return seconds_since(start);
  };
  StepFigures figures{};
  for (int warm = 0; warm < 2; ++warm) (void)step();
  std::vector<double> seconds(static_cast<std::size_t>(steps));
  for (double& s : seconds) s = step();
  // Run more steps to time the tasks. Graphs give no task times, and neither do steps that leave tasks to the next one.
  for (int i = 0; i < steps; ++i) {
    executor.time_next_step();
    (void)step();
    const auto spans = executor.spans();
    for (std::size_t t = 0; t < spans.size(); ++t)
      figures.by_kind_ms[static_cast<std::size_t>(job.plan.tasks[t].kind)] +=
          static_cast<double>(spans[t].end - spans[t].begin) / 1e6 / steps;
    for (const double ms : runtime::exposed_ms(job.plan, spans)) figures.waited_ms += ms / steps;
  }
  figures.step_s = median_of(std::move(seconds));
  return figures;
}

void bench_step(const BenchOptions& options, comm::World& world) {
  agree(world, [&] {
    if (world.rank() == 0) require_own_json(options);
  });
  const runtime::Recipe asked = read_recipe(options.recipe, options.sets, world, false).recipe;
  if (agree_on_rank_device(asked, world).device.kind != device::Kind::cpu)
    throw AgreedError(
        Exit::usage,
        "bench step can compute the floor only for CPUs: set device.kind = cpu, or let strata train write "
        "report.summary, which has the speed of a GPU's steps");
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  // The job is run on random tokens.
  const PlannedRun planned = plan_run(asked, world, {.looks_at_data = false});
  const runtime::Job& job = planned.job;
  const runtime::Recipe& recipe = job.recipe;
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));

  // Measure before the run's memory is allocated, on all ranks at the same time, as in the step.
  world.barrier();
  const Floor floor = floor_of(job, threads);
  world.barrier();
  runtime::Executor executor(job.plan, *job.model, world, {}, threads, recipe.io_options());
  const auto source = runtime::random_weights(*job.model, recipe.training.seed);
  runtime::load_same_weights(executor, *job.model, job.plan, *source, threads, world);
  fill_random_tokens(executor, job, world.rank());
  const StepFigures figures = time_steps(executor, job, options.steps);
  world.barrier();
  if (world.rank() != 0) return;

  const double floor_s = floor.products_s + floor.optimizer_s;
  const double tokens = static_cast<double>(job.plan.tokens) * job.ranks * job.plan.accumulation;
  fmt::print("{:.1f} tokens/s, {:.1f} ms per step (median of {})\n", tokens / figures.step_s, figures.step_s * 1e3,
             options.steps);
  fmt::print("floor {:.1f} ms: products alone {:.1f} ms, optimizer {:.1f} ms at {:.1f} GB/s; ratio {:.2f}\n",
             floor_s * 1e3, floor.products_s * 1e3, floor.optimizer_s * 1e3, floor.triad, figures.step_s / floor_s);
  JsonObject kinds;
  for (std::size_t k = 0; k < figures.by_kind_ms.size(); ++k) {
    if (figures.by_kind_ms[k] == 0) continue;
    fmt::print("  {:<12} {:>9.1f} ms\n", runtime::kTaskTraits[k].name, figures.by_kind_ms[k]);
    kinds.add(runtime::kTaskTraits[k].name, Decimals{figures.by_kind_ms[k], 3});
  }
  fmt::print("  {:<12} {:>9.1f} ms (compute lane, for other lanes)\n", "waited", figures.waited_ms);
  write_json(options, JsonObject()
                          .add("tokens_per_s", Decimals{tokens / figures.step_s, 2})
                          .add("step_ms", Decimals{figures.step_s * 1e3, 3})
                          .add("floor_ms", Decimals{floor_s * 1e3, 3})
                          .add("floor_ratio", Decimals{figures.step_s / floor_s, 4})
                          .add("by_kind_ms", kinds));
}

void bench_comm(const BenchOptions& options, std::span<const std::string> sets, comm::World& world) {
  if (world.size() == 1)
    throw AgreedError(Exit::usage,
                      "bench comm measures what ranks send each other: start several, mpirun -n 2 strata bench "
                      "comm");
  agree(world, [&] {
    if (world.rank() == 0) require_own_json(options);
  });
  const runtime::Recipe asked = read_recipe(options.recipe, sets, world, false).recipe;
  const device::Device device = agree_on_rank_device(asked, world).device;
  (void)bind_cores(world.node_rank(), world.node_size());
  device::Lane lane("bench", 1, world.rank(), world.abort_token(), device);
  const auto communicator = world.open(lane);
  const auto ranks = static_cast<std::size_t>(world.size());
  JsonArray rows;
  if (world.rank() == 0) fmt::print("{}, {}\n", counted(ranks, "rank"), world.describe());
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{64} << 20}) {
    const std::size_t shard = (bytes / ranks + 4095) / 4096 * 4096, whole = shard * ranks;
    const device::Arena arena = world.allocate(3 * whole, device);
    const comm::ShardedRange range{shard, 0, whole};
    std::vector<const std::byte*> pieces(ranks);
    const auto time = [&](auto&& issue) {
      std::vector<double> ms;
      for (int run = -2; run < 9; ++run) {
        world.barrier();
        const auto start = std::chrono::steady_clock::now();
        issue();
        lane.synchronize();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        if (run >= 0) ms.push_back(took.count());
      }
      return median_of(std::move(ms));
    };
    const auto show = [&](const char* name, double ms) {
      const double sent = static_cast<double>(whole - shard), rate = sent / ms / 1e6;
      if (world.rank() == 0)
        fmt::print("  {:<12}{:>12} bytes {:>10.3f} ms {:>8.2f} GB/s sent per rank\n", name, whole, ms, rate);
      rows.add(JsonObject()
                   .add("collective", name)
                   .add("bytes", whole)
                   .add("ms", Decimals{ms, 4})
                   .add("gb_per_s", Decimals{rate, 3}));
    };
    show("all_gather", time([&] { communicator->all_gather(range, arena.at(0), arena.at(whole)); }));
    // Includes the ordered sum after every all-to-all, because in shared memory the sum moves the bytes.
    const View sum{arena.at(2 * whole), shard / 4, DType::fp32};
    show("all_to_all", time([&] {
           communicator->all_to_all(range, arena.at(0), arena.at(whole), pieces.data());
           gradient_sum(lane, pieces, DType::fp32, sum, true);
           communicator->release();
         }));
  }
  if (world.rank() == 0) write_json(options, JsonObject().add("collectives", rows));
  world.barrier();
}

}  // namespace

int bench(const BenchOptions& options) {
  if (options.part == "step")
    return run_as_rank(options.recipe, options.sets, [&](comm::World& world) { bench_step(options, world); });
  if (options.part == "comm") {
    const std::vector<std::string> sets = sets_with_model(options);
    return run_as_rank(options.recipe, sets, [&](comm::World& world) { bench_comm(options, sets, world); });
  }
  constexpr std::string_view kAlone[] = {"adam", "io", "kernels", "memory"};
  if (std::find(std::begin(kAlone), std::end(kAlone), options.part) == std::end(kAlone))
    return refuse_as_rank(
        {Exit::usage,
         fmt::format("there is no benchmark {}: give step, adam, comm, io, kernels or memory", options.part)});
  require_own_json(options);
  if (options.part == "adam") return bench_adam(options);
  if (options.part == "io") return bench_io(options);
  if (options.part == "memory") return bench_memory(options);
  return bench_kernels(options);
}

std::vector<std::string> sets_with_model(const BenchOptions& options) {
  std::vector<std::string> sets = options.sets;
  if (!options.recipe) sets.insert(sets.begin(), "model.preset=tiny-gpt2");
  return sets;
}

void require_own_json(const BenchOptions& options) {
  if (options.json) require_own({"--json", *options.json}, Content::bench, options.force);
}

void write_json(const BenchOptions& options, const JsonObject& figures) {
  if (!options.json) return;
  runtime::ReportFile file(*options.json, "--json");
  file.write(JsonObject().add("bench", options.part).add_all(figures).text() + "\n");
  file.close();
}

}  // namespace strata::launcher

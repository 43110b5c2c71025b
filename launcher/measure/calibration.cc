#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "device/cpu/isa.h"
#include "device/cpu/lane_impl.h"
#include "device/ops/elementwise.h"
#include "device/ops/step/gradient_sum.h"
#include "device/ops/step/optimizer.h"
#include "launcher/measure/calibrate.h"
#include "launcher/measure/call_timer.h"
#include "launcher/measure/reference_block.h"

namespace strata::launcher {
namespace {

using device::DType;
using device::Lane;
using device::View;

// Calls `work` repeatedly in a separate lane until this object is destroyed.
class BackgroundLoad {
 public:
  BackgroundLoad(const std::function<void()>& work, comm::World& world)
      : lane_("calibrate meanwhile", 1, world.rank(), world.abort_token()) {
    device::cpu::submit(lane_, [this, &work](device::cpu::Team&) {
      for (; !stop_; ++calls_) work();
    });
  }
  ~BackgroundLoad() { stop_ = true; }
  double calls() const { return static_cast<double>(calls_); }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<long> calls_ = 0;
  device::Lane lane_;  // declared last: destroyed first, after its work is done
};

class Calibration {
 public:
  Calibration(const CalibrationScope& scope, comm::World& world, int threads)
      : scope_(scope),
        world_(world),
        team_("calibrate", threads, world.rank(), world.abort_token()),
        single_("calibrate one", 1, world.rank(), world.abort_token()),
        timer_(scope.seconds, scope.passes, world) {}

  // Makes several passes over all figures and combines the calls of a figure from all of them. A disturbance of some
  // seconds then affects a few calls of each figure instead of all calls of one.
  runtime::Machine run() {
    for (int i = 0; i < scope_.passes; ++i) pass();
    return std::move(machine_);
  }
  std::vector<Figure> take_figures() { return timer_.take_figures(); }

 private:
  void pass() {
    machine_ = {};
    timer_.begin_pass();
    machine_.processor = device::cpu::describe();
    const int near = runtime::ranks_per_node(world_.nodes(), world_.size());
    machine_.ranks = near > 0 ? near : world_.size();  // if nodes differ, as if all ranks were on one node
    machine_.threads = team_.threads();
    measure_waking();
    measure_blocks();
    measure_optimizer();
    measure_memory();
    if (!scope_.dirs.empty()) measure_disk();
    measure_communication();
  }

  // The time from one lane to another and back, as for a task that waits for one in another lane.
  void measure_waking() {
    constexpr int kTimes = 50;
    device::Event there, back;
    const double seconds = timer_.time_one(single_, [&] {
      for (int i = 0; i < kTimes; ++i) {
        single_.record(there);
        team_.wait(there);
        team_.record(back);
        single_.wait(back);
      }
    });
    machine_.task_overhead_us = seconds / (2 * kTimes) * 1e6;
    timer_.show("synchronisation of a task", "us", machine_.task_overhead_us, 0);
  }

  void measure_blocks() {
    for (const std::size_t width : scope_.widths) machine_.widths.push_back(static_cast<double>(width));
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      const auto t = static_cast<std::size_t>(dtype);
      for (const std::size_t width : scope_.widths) {
        ReferenceBlock block(team_, {width, scope_.batch, scope_.seq, scope_.vocabulary, dtype});
        const auto s = timer_.time(team_, {block.block(), block.products(), block.attention()});
        machine_.products_gflop_per_s[t].push_back(block.block_work().flops / s[1] / 1e9);
        machine_.attention_gflop_per_s[t] = block.block_work().attention_flops / s[2] / 1e9;
        // At least a tenth of the total, because this is a difference of inexact figures.
        machine_.elementwise_gb_per_s[t].push_back(block.block_work().bytes / std::max(s[0] - s[1] - s[2], 0.1 * s[0]) /
                                                   1e9);
        const std::string of = fmt::format("{}, width {}", runtime::kDTypeKeys[t], width);
        timer_.show("GEMM, " + of, "GFLOP/s", machine_.products_gflop_per_s[t].back(), 1);
        timer_.show("attention, " + of, "GFLOP/s", machine_.attention_gflop_per_s[t], 2);
        timer_.show("memory-bound kernels, " + of, "GB/s", machine_.elementwise_gb_per_s[t].back(), 0);
        if (width != scope_.widths[scope_.widths.size() / 2]) continue;
        const auto h = timer_.time(team_, {block.head(), block.head_products()});
        machine_.loss_gb_per_s[t] = block.head_work().bytes / std::max(h[0] - h[1], 0.1 * h[0]) / 1e9;
        timer_.show(fmt::format("loss, {}", runtime::kDTypeKeys[t]), "GB/s", machine_.loss_gb_per_s[t], 0);
      }
    }
  }

  void measure_optimizer() {
    Operands memory;
    const std::size_t n = std::max<std::size_t>(4096, scope_.bytes / 16 / 4096 * 4096);
    const View gradient = memory.take(n, DType::fp32), parameter = memory.take(n, DType::bf16);
    const View master = memory.take(n, DType::fp32), first = memory.take(n, DType::fp32),
               second = memory.take(n, DType::fp32);
    for (std::size_t i = 0; i < n; ++i) gradient.as<float>()[i] = 1e-3f * static_cast<float>(i * 40503u % 1021);
    device::StepScalars scalars{};
    scalars.learning_rate = 1e-3f;
    scalars.gradient_factor = scalars.bias_correction1 = scalars.bias_correction2 = 1;
    for (std::size_t f = 0; f < runtime::kMomentKeys.size(); ++f) {
      const auto format = static_cast<device::StorageFormat>(f);
      zero(team_, first);
      zero(team_, second);
      const double seconds = timer_.time_one(team_, [&] {
        update(team_, {}, &scalars,
               {.first = gradient,
                .master = master,
                .parameter = parameter,
                .format = format,
                .moment1 = first.data,
                .moment2 = second.data});
      });
      // Bytes as the planner counts them: master in and out, gradient and parameter, moments in and out.
      const auto bytes = static_cast<double>(n * (8 + 4 + 2) + 4 * device::stored_bytes(format, n));
      machine_.optimizer_gb_per_s[f] = bytes / seconds / 1e9;
      timer_.show(fmt::format("AdamW, moments in {}", runtime::kMomentKeys[f]), "GB/s", machine_.optimizer_gb_per_s[f],
                  0);
    }
  }

  void measure_memory() {
    Operands memory;
    const std::size_t n = std::max<std::size_t>(4096, scope_.bytes / 8 / 4096 * 4096);
    const View x = memory.take(n, DType::fp32), y = memory.take(n, DType::fp32);
    const auto bytes = static_cast<double>(n * sizeof(float));
    const auto t = timer_.time(team_, {Calls{[&] { add(team_, x, y); }}, Calls{[&] { cast(team_, x, y); }}});
    machine_.triad_gb_per_s = 3 * bytes / t[0] / 1e9;
    machine_.device_copy_gb_per_s = bytes / t[1] / 1e9;
    timer_.show("memory, y += x", "GB/s", machine_.triad_gb_per_s, 0);
    timer_.show("memory, copy", "GB/s", machine_.device_copy_gb_per_s, 1);
    // The work of single-threaded lanes: a copy between tiers, adding a bf16 gradient to a sum, and its sum of squares.
    const View gradient{x.data, n, DType::bf16};
    const std::array<const std::byte*, 1> pieces{gradient.data};
    device::ExactSum squares;
    const auto s = timer_.time(single_, {Calls{[&] { cast(single_, x, y); }},
                                         Calls{[&] { gradient_sum(single_, pieces, DType::bf16, y, false); }},
                                         Calls{[&] { gradient_square_sum(single_, x, {}, &squares); }}});
    machine_.host_copy_gb_per_s = bytes / s[0] / 1e9;
    machine_.sum_gb_per_s = static_cast<double>(n * (2 + 8)) / s[1] / 1e9;
    machine_.norm_gb_per_s = bytes / s[2] / 1e9;
    timer_.show("one thread, copy between tiers", "GB/s", machine_.host_copy_gb_per_s, 0);
    timer_.show("one thread, sum of gradients", "GB/s", machine_.sum_gb_per_s, 1);
    timer_.show("one thread, norm of gradients", "GB/s", machine_.norm_gb_per_s, 2);
  }

  // Writes and reads in calls as large as an update's chunk of fp32 state, and determines what a small call costs in
  // addition to its bytes.
  void measure_disk() {
    constexpr std::size_t kCall = std::size_t{8} << 20, kSmall = std::size_t{64} << 10;
    const std::size_t all = std::max(2 * kCall, scope_.bytes / (2 * kCall) * (2 * kCall));
    device::Arena staging(2 * kCall);  // outlives the swap
    const std::span<std::byte> out{staging.data(), kCall}, in{staging.at(kCall), kCall};
    fill_pages(staging);
    offload::Swap swap = open_drives(scope_.dirs, world_, all);
    swap.register_memory({staging.data(), staging.size()});
    const auto pass = [&](auto&& transfer) {
      return [&, transfer] {
        for (std::size_t at = 0; at < all; at += kCall) transfer(at);
      };
    };
    const auto s = timer_.time(
        single_, {Calls{pass([&](std::size_t at) { swap.write(at, out); })},
                  Calls{pass([&](std::size_t at) { swap.read(at, in); })},
                  Calls{[&] { swap.write(0, out.first(kSmall)); }}, Calls{[&] { swap.read(0, in.first(kSmall)); }}});
    const double bytes = static_cast<double>(all) / 1e9;
    const auto beyond_bytes_us = [&](double small, double whole) {
      return 1e6 * std::max(small - whole * kSmall / static_cast<double>(all), 0.1 * small);
    };
    machine_.disk = {.drives = static_cast<double>(scope_.dirs.size()),
                     .read_gb_per_s = bytes / s[1],
                     .write_gb_per_s = bytes / s[0],
                     .read_latency_us = beyond_bytes_us(s[3], s[1]),
                     .write_latency_us = beyond_bytes_us(s[2], s[0])};
    timer_.show("drives, read", "GB/s", machine_.disk->read_gb_per_s, 1);
    timer_.show("drives, write", "GB/s", machine_.disk->write_gb_per_s, 0);
    // Writes and reads each cycle through their own half of the files.
    const std::size_t half = all / 2;
    std::size_t written = 0, read = 0;
    const auto next = [half](std::size_t& at) { return std::exchange(at, (at + kCall) % half); };
    const double share = static_cast<double>(kCall) / static_cast<double>(all);
    measure_disk_contention({[&] { swap.write(next(written), out); }, s[0] * share},
                            {[&] { swap.read(half + next(read), in); }, s[1] * share});
  }

  // A transfer, and the seconds that it takes on its own.
  struct Transfer {
    std::function<void()> call;
    double seconds;
  };

  // During an update on NVMe, reads, writes and products slow each other down.
  void measure_disk_contention(const Transfer& write, const Transfer& read) {
    ReferenceBlock block(
        team_, {scope_.widths[scope_.widths.size() / 2], scope_.batch, scope_.seq, scope_.vocabulary, DType::bf16});
    const double products = timer_.time(team_, {block.products()})[0];
    const BackgroundLoad writes(write.call, world_), reads(read.call, world_);
    const auto done = [&] { return writes.calls() * write.seconds + reads.calls() * read.seconds; };
    // The seconds for one second's worth of transfers while `work` runs. They are summed over all passes, because a
    // window ends in the middle of calls, and so the quickest windows are just those in which most calls ended.
    const auto pace = [&](const std::function<void()>& work) {
      world_.barrier();
      CallTimer::Samples& group = timer_.next(1)[0];
      group.resize(2);
      const double before = done();
      const auto start = std::chrono::steady_clock::now();
      do {
        work();
        world_.check_peers();
        world_.abort_token().throw_if_set();
      } while (seconds_since(start) < 4 * scope_.seconds / scope_.passes || done() == before);
      group[0].push_back(seconds_since(start));
      group[1].push_back(done() - before);
      const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
      return sum(group[0]) / sum(group[1]);
    };
    const double both = pace([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
    const double during_products = pace([&] {
      for (const auto& call : block.products()) call();
      team_.synchronize();
    });
    machine_.disk->both_ways = std::min(2.0, 1 / both);
    machine_.disk->speed_during_products = std::min(1.0, both / during_products);
    machine_.disk->slows_products = std::max(timer_.time(team_, {block.products()})[0] / products - 1, 0.0);
  }

  void measure_collectives(const comm::Group& group) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t shard = std::max<std::size_t>(4096, scope_.bytes / 16 / ranks / 4096 * 4096);
    const std::size_t whole = shard * ranks;
    const device::Arena arena = world_.allocate(4 * whole);
    const auto communicator = world_.open(single_, group);
    const comm::ShardedRange range{shard, 0, whole};
    std::vector<const std::byte*> pieces(ranks);
    const double sent = static_cast<double>(whole - shard) / 1e9;
    const double all_gather =
        sent / timer_.time_collective(single_, [&] { communicator->all_gather(range, arena.at(0), arena.at(whole)); });
    timer_.show("all-gather, sent per rank", "GB/s", all_gather, 0);
    // Includes the sum, as when a step reduces bf16 gradients, because in shared memory the sum moves the bytes.
    const View sum{arena.at(2 * whole), shard / size_of(DType::bf16), DType::fp32};
    const double all_to_all = sent / timer_.time_collective(single_, [&] {
      communicator->all_to_all(range, arena.at(0), arena.at(whole), pieces.data());
      gradient_sum(single_, pieces, DType::bf16, sum, false);
      communicator->release();
    });
    timer_.show("all-to-all and its sum, sent per rank", "GB/s", all_to_all, 0);
    machine_.collectives = {all_gather, all_to_all};
  }

  // Measures between the ranks with the same place on each node, for all places at the same time, because they share
  // the links of the nodes.
  void measure_network(const comm::Group& group, int ranks_of_node) {
    const auto nodes = static_cast<std::size_t>(group.size());
    const std::size_t shard = std::max<std::size_t>(4096, scope_.bytes / 16 / nodes / 4096 * 4096);
    const device::Arena arena = world_.allocate(2 * shard * nodes);
    const auto communicator = world_.open(single_, group);
    const double seconds = timer_.time_collective(single_, [&] {
      communicator->all_gather({shard, 0, shard * nodes}, arena.at(0), arena.at(shard * nodes));
    });
    const double gb_per_s = static_cast<double>(shard * (nodes - 1)) * ranks_of_node / seconds / 1e9;
    timer_.show("between nodes, sent per node", "GB/s", gb_per_s, 0);
    const double latency =
        timer_.time_collective(single_, [&] { communicator->exchange(arena.at(0), 8, arena.at(shard)); });
    timer_.show("between nodes, 8 bytes", "us", latency * 1e6, 0);
    machine_.network = {gb_per_s, latency * 1e6};
  }

  void measure_communication() {
    const int rank = world_.rank(), near = machine_.ranks, nodes = world_.size() / near, first = rank / near * near;
    if (near > 1) {
      comm::Group node{{}, rank - first};
      for (int i = 0; i < near; ++i) node.members.push_back(first + i);
      measure_collectives(node);
    }
    if (nodes == 1) return;
    comm::Group places{{}, rank / near};
    for (int i = 0; i < nodes; ++i) places.members.push_back(i * near + rank - first);
    measure_network(places, near);
  }

  const CalibrationScope& scope_;
  comm::World& world_;
  Lane team_, single_;
  CallTimer timer_;
  runtime::Machine machine_;
};

}  // namespace

runtime::Machine measure(const CalibrationScope& scope, comm::World& world, int threads, std::vector<Figure>* figures) {
  Calibration calibration(scope, world, threads);
  runtime::Machine machine = calibration.run();
  if (figures) *figures = calibration.take_figures();
  return machine;
}

void fill_pages(const device::Arena& pages) {
  std::uint64_t state = 1;
  for (std::size_t at = 0; at < pages.size(); at += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::copy_n(reinterpret_cast<const std::byte*>(&state), sizeof(state), pages.at(at));
  }
}

offload::Swap open_drives(const std::vector<std::filesystem::path>& folders, comm::World& world, std::size_t bytes) {
  offload::IoOptions io;
  io.folders = folders;
  return {io, bytes, world.rank(), world.abort_token()};
}

}  // namespace strata::launcher

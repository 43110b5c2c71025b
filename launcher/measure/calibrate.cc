#include "launcher/measure/calibrate.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files/atomic_file.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "device/gpu.h"
#include "launcher/median.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {
namespace {

// The system's load average over the last minute; 0 if it is not available.
double load_average() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

void warn_if_busy() {
  const double load = load_average();
  if (load > 0.3 * cores_here())
    note_folded(
        fmt::format("this machine is busy, or was in the last minute (a load of {:.1f} on {}): other programs lower "
                    "the figures; stop them, and calibrate again",
                    load, counted(cores_here(), "core")));
}

void print_figures(const std::vector<Figure>& figures) {
  fmt::print("{:<42}{:>10} {:<8}{:>8}\n", "per rank, while all of them measure", "", "", "spread");
  for (const Figure& f : figures)
    fmt::print("{:<42}{:>10.4g} {:<8}{:>8}\n", f.what, f.value, f.unit, fmt::format("+-{:.0f}%", 100 * f.spread));
  if (const double spread = median_spread(figures).value_or(0); spread > kWideSpread)
    note_folded(
        fmt::format("half of the figures vary by more than {:.0f}%: other programs ran, or the clock changed; "
                    "calibrate again when no other program runs",
                    100 * spread));
}

}  // namespace

int calibrate(const CalibrateOptions& options) {
  return run_as_rank({}, {}, [&](comm::World& world) {
    const CoreShare share = bind_cores(world.node_rank(), world.node_size());
    std::optional<AtomicFile> file;  // opened before measuring, which takes a while
    comm::agree(world, [&] {
      if (world.rank() == 0) {
        require_own({"--out", options.out}, Content::machine, options.force);
        file.emplace(options.out);
      }
      if (!options.dirs.empty()) (void)open_drives(options.dirs, world, std::size_t{1} << 20);
    });
    if (world.rank() == 0)
      note(
          "measuring this machine takes a minute or two if no other program runs on it, and longer otherwise: wait "
          "until it ends before you start one");
    if (world.rank() == 0) warn_if_busy();
    if (world.rank() == 0 && device::find_gpus().usable()) note("measuring the CPU, not the GPUs here");
    const auto start = std::chrono::steady_clock::now();
    std::vector<Figure> figures;
    runtime::Machine machine = measure(options, world, share.cores, &figures);
    if (world.rank() == 0) {
      machine.spread = median_spread(figures);
      file->write(machine_toml(machine) + wide_spreads(figures));
      file->commit();
      print_figures(figures);
      const double seconds = seconds_since(start);
      fmt::print("\n{}\n", folded(fmt::format("{}: {}, {} each; written to {} after {:.0f} s", machine.processor,
                                              counted(machine.ranks, "rank"), counted(machine.threads, "thread"),
                                              options.out.string(), seconds),
                                  2));
    }
    world.barrier();
  });
}

std::optional<double> median_spread(const std::vector<Figure>& figures) {
  if (figures.empty()) return std::nullopt;
  std::vector<double> spreads;
  spreads.reserve(figures.size());
  for (const Figure& figure : figures) spreads.push_back(figure.spread);
  return median_of(std::move(spreads));
}

std::string wide_spreads(const std::vector<Figure>& figures) {
  std::string text;
  for (const Figure& f : figures)
    if (f.spread > kWideSpread)
      text += fmt::format("# {}: {:.4g} {}, +-{:.0f}%\n", f.what, f.value, f.unit, 100 * f.spread);
  return text.empty()
             ? ""
             : "\n# Measured with a wide spread, probably because the machine was busy with other work:\n" + text;
}

}  // namespace strata::launcher

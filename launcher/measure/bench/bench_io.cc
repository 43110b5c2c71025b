#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/abort.h"
#include "base/error.h"
#include "base/json/json_writer.h"
#include "device/memory.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/calibrate.h"
#include "launcher/median.h"
#include "offload/swap.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::launcher {
namespace {

// The bytes of one call: those of a unit of a large model, because a step moves a whole unit in one call.
constexpr std::uint64_t kCall = std::uint64_t{256} << 20;

// The speed in GB/s of f(offset, size), called over `bytes`.
template <typename F>
double speed(std::uint64_t bytes, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t at = 0; at < bytes; at += kCall) f(at, std::min(kCall, bytes - at));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / took.count() / 1e9;
}

offload::IoOptions io_options(const BenchOptions& options) {
  offload::IoOptions io = runtime::load_recipe(options.recipe, sets_with_model(options)).io_options();
  if (!options.dirs.empty()) io.folders = options.dirs;
  if (io.folders.empty()) fail(Exit::usage, "strata bench io needs --dir DIR: a folder on the drive to measure");
  return io;
}

}  // namespace

int bench_io(const BenchOptions& options) {
  const auto wanted = runtime::parse_size(options.size);
  if (!wanted) fail(Exit::usage, "--size {}: it takes a size such as 2GiB", options.size);
  const std::uint64_t bytes = (*wanted + offload::kBlock - 1) / offload::kBlock * offload::kBlock;
  const AbortToken abort;
  offload::Swap swap(io_options(options), bytes, 0, abort);
  device::Arena staging(std::min(kCall, bytes));
  fill_pages(staging);
  swap.register_memory({staging.data(), staging.size()});
  const auto write = [&](std::uint64_t at, std::uint64_t size) { swap.write(at, {staging.data(), size}); };
  const auto read = [&](std::uint64_t at, std::uint64_t size) { swap.read(at, {staging.data(), size}); };
  (void)speed(bytes, write);
  std::vector<double> written, was_read;
  for (int round = 0; round < options.rounds; ++round) {
    written.push_back(speed(bytes, write));
    was_read.push_back(speed(bytes, read));
  }
  fmt::print("write {:.2f} GB/s, read {:.2f} GB/s (medians of {} passes over {} MiB)\n", median_of(written),
             median_of(was_read), options.rounds, bytes >> 20);
  std::string modes;
  for (const auto& drive : swap.drives()) {
    fmt::print("{}: {}\n", drive.folder.string(), to_string(drive.mode));
    for (const std::string& reason : drive.refused) fmt::print("  not used: {}\n", reason);
    for (const std::string& note : drive.notes) fmt::print("  note: {}\n", note);
    const std::string mode = to_string(drive.mode);
    if (modes.find(mode) == std::string::npos) modes += (modes.empty() ? "" : " | ") + mode;
  }
  write_json(options, JsonObject()
                          .add("write_gb_per_s", Decimals{median_of(written), 4})
                          .add("read_gb_per_s", Decimals{median_of(was_read), 4})
                          .add("rung", modes));
  return 0;
}

}  // namespace strata::launcher

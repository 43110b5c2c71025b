#pragma once
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/forecast/simulator.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

inline constexpr std::array<std::string_view, 3> kDTypeKeys = {"fp32", "bf16", "fp16"};
inline constexpr std::array<std::string_view, 3> kMomentKeys = {"fp32", "bf16", "8bit"};

// The contents of a machine file: the speeds of one rank while all `ranks` of the machine worked, measured by `strata
// calibrate` or computed from data sheets. Arrays are by compute dtype, in DType's order; the optimizer's by
// StorageFormat.
struct Machine {
  bool gpu = false;      // device = "gpu": each rank has its own GPU
  bool measured = true;  // source = "measured", or "data sheets"
  std::string processor;
  int ranks = 1, threads = 1;  // threads: per rank
  // The relative spread of a figure's repeated measurements, as the median over all figures; none: not measured.
  std::optional<double> spread;
  double task_overhead_us = 0;
  // Speeds of blocks by width (hidden size), ascending: of products, and of the rest of a block's work.
  std::vector<double> widths;
  std::array<std::vector<double>, 3> products_gflop_per_s, elementwise_gb_per_s;
  std::array<double, 3> attention_gflop_per_s{}, loss_gb_per_s{};
  std::array<double, 3> optimizer_gb_per_s{};
  double triad_gb_per_s = 0, device_copy_gb_per_s = 0;
  // Figures of one thread, because the lanes that do this work have one.
  double host_copy_gb_per_s = 0, sum_gb_per_s = 0, norm_gb_per_s = 0;
  struct Disk {
    double drives = 1, read_gb_per_s = 0, write_gb_per_s = 0;  // striped over all drives
    double read_latency_us = 0, write_latency_us = 0;          // per transfer, in addition to its bytes
    double both_ways = 1;              // throughput of simultaneous reads and writes, relative to either alone
    double speed_during_products = 1;  // speed of the drives during products, relative to their speed alone
    double slows_products = 0;         // how much longer products take during transfers, relative to their time alone
  };
  std::optional<Disk> disk;
  struct Collectives {
    // In bytes that a rank sends. all_to_all: of bf16 gradients, including the ordered sum that follows.
    double all_gather_gb_per_s = 0, all_to_all_gb_per_s = 0;
  };
  std::optional<Collectives> collectives;
  // Between nodes of `ranks` ranks each.
  struct Network {
    double gb_per_s = 0, latency_us = 0;  // per link and direction
    double rails = 1;                     // links per node, or per rank
    bool shared = true;                   // the ranks of a node share the links; otherwise each has its own
  };
  std::optional<Network> network;
  // A rank's capacity on that machine, used if the recipe does not set it.
  struct Capacity {
    double device_gib = 0, host_gib = 0;
  };
  std::optional<Capacity> capacity;
  // AdamW on the host's cores of a GPU machine, in bytes read and written. A CPU's figure is in optimizer_gb_per_s.
  std::optional<double> host_update_gb_per_s;
};

// Reads a machine file. Throws Error{usage} with path and key if a key is unknown, missing or out of range.
Machine read_machine(const std::filesystem::path& path);
// The file's text, as read_machine accepts it.
std::string machine_toml(const Machine& machine);

// The speeds for a job's tasks, with `ranks_per_node` of its ranks on each machine. If that differs from the measured
// number, cores, memory and drives are shared evenly among the job's ranks, but single threads are never faster than
// measured. Each rank has its own GPU if there are enough. Throws Error{usage} if a figure that the job needs is
// missing.
MachineProfile profile_of(const Machine& machine, const Job& job, int ranks_per_node);

// Tells the user how profile_of scales the measured speeds for a job of `ranks`, one line per reason; empty if it does
// not scale them.
std::string scaling_text(const Machine& machine, int ranks, int ranks_per_node, std::size_t drives);

}  // namespace strata::runtime

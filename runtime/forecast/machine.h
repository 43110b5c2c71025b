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

// What a machine file holds: the speeds that `strata calibrate` measured, or that are computed from data sheets, of one
// rank while all `ranks` of the node worked. By dtype where the compute dtype matters, in DType's order; optimizer: by
// StorageFormat.
struct Machine {
  bool gpu = false;      // device = "gpu": a rank has a GPU of its own
  bool measured = true;  // source = "measured", or "data sheets"
  std::string processor;
  int ranks = 1, threads = 1;  // threads: of a rank
  // Of the figures, the median of how far the calls of each lay apart, as a part of it; none: nobody looked.
  std::optional<double> spread;
  double task_overhead_us = 0;
  // Blocks of these widths (hidden elements), rising: products, and what else a block does.
  std::vector<double> widths;
  std::array<std::vector<double>, 3> products_gflop_per_s, elementwise_gb_per_s;
  std::array<double, 3> attention_gflop_per_s{}, loss_gb_per_s{};
  std::array<double, 3> optimizer_gb_per_s{};
  double triad_gb_per_s = 0, device_copy_gb_per_s = 0;
  // Of one thread, as those lanes have.
  double host_copy_gb_per_s = 0, sum_gb_per_s = 0, norm_gb_per_s = 0;
  struct Disk {
    double drives = 1, read_gb_per_s = 0, write_gb_per_s = 0;  // striped over all drives
    double read_latency_us = 0, write_latency_us = 0;          // of a transfer, beyond its bytes
    double both_ways = 1;        // how much reads and writes at once get done of what either would alone
    double beside_products = 1;  // how fast they are then beside products, of that
    double slows_products = 0;   // what products take longer beside them, as a part of their time alone
  };
  std::optional<Disk> disk;
  struct Collectives {
    // Of bytes that a rank sends; the all-to-all of bf16 gradients with the ordered sum that follows it.
    double all_gather_gb_per_s = 0, all_to_all_gb_per_s = 0;
  };
  std::optional<Collectives> collectives;
  // Of a rank, where a recipe and the system at hand do not say it: of a machine that is elsewhere.
  struct Capacity {
    double device_gib = 0, host_gib = 0;
  };
  std::optional<Capacity> capacity;
  // AdamW by the host's cores beside a GPU, bytes in and out; the CPU's own is in optimizer_gb_per_s.
  std::optional<double> host_update_gb_per_s;
};

// The file. Throws Error{usage} naming path and key: unknown, missing, or no number above zero.
Machine read_machine(const std::filesystem::path& path);
// Its text, as read_machine takes it.
std::string machine_toml(const Machine& machine);

// The speeds that the tasks of a job meet, with `ranks_per_node` of its ranks on each machine. Where others than so
// many were measured, cores, memory and drives are shared out evenly among those, and what one thread does or sends is
// no faster than it was; a GPU is a rank's own if there are enough of them. Throws Error{usage} if the job needs what
// was not measured.
MachineProfile profile_of(const Machine& machine, const Job& job, int ranks_per_node);

// What profile_of does to the measured speeds for a job of `ranks`, as a line for people; empty: nothing.
std::string scaling_text(const Machine& machine, int ranks, int ranks_per_node, std::size_t drives = 0);

}  // namespace strata::runtime

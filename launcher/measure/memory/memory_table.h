#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/measure/memory/memory_setting.h"
#include "runtime/plan/plan.h"

namespace strata::launcher {

// The result of a run with one setting.
struct MemoryResult {
  std::array<std::uint64_t, runtime::kTiers> measured;  // peak bytes of each tier
  std::uint64_t process;                                // peak bytes of the whole process: resident, or on its GPU
  double step_ms;                                       // median
  double loss;                                          // after the last step
  std::string bits;                                     // hash of every step's loss and of the weights
};
// A row of the table. If it has neither result nor failure, it has not run yet.
struct MemoryRow {
  MemorySetting setting;
  runtime::Memory planned;
  bool fits = true;
  std::optional<MemoryResult> result = {};
  std::string failure = {};  // why it did not run to its end
};

// Which tiers share a memory: on a CPU the device tier is in RAM, as the host tier is.
enum class MemoryOf : std::uint8_t { cpu, gpu };
// Bytes of the scarce memory: RAM, or the GPU's.
std::uint64_t planned_bytes(const MemoryRow& row, MemoryOf of);
std::uint64_t measured_bytes(const MemoryRow& row, MemoryOf of);

// For people: two header lines, and one line per row.
std::string memory_header(MemoryOf of);
std::string memory_line(const MemoryRow& row, MemoryOf of);

// Rows with other bits than promised; empty if the promise is kept.
std::vector<const MemoryRow*> broken_promises(const std::vector<MemoryRow>& rows);
// How many settings of how many numerics were compared, or which of them differ.
std::string promise_text(const std::vector<MemoryRow>& rows);

// [{"precision":"fp32",...}, ...]
std::string memory_rows_json(const std::vector<MemoryRow>& rows, MemoryOf of);

}  // namespace strata::launcher

#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/measure/memory/memory_setting.h"
#include "runtime/plan/plan.h"

namespace strata::launcher {

// What a run with a setting came to.
struct MemoryResult {
  std::array<std::uint64_t, runtime::kTiers> measured;  // bytes of each tier at its peak
  std::uint64_t process;                                // bytes that the process took in all: resident, or of its GPU
  double step_ms;                                       // the median
  double loss;                                          // of the last step
  std::string bits;                                     // a hash of every step's loss and of the weights
};
// A line of the table. Neither fits nor failure: it did not run yet.
struct MemoryRow {
  MemorySetting setting;
  runtime::Memory planned;
  bool fits = true;
  std::optional<MemoryResult> result = {};
  std::string failure = {};  // why it did not run to its end
};

// Which tiers are one memory: on a CPU the device is RAM, as the host is.
enum class MemoryOf : std::uint8_t { cpu, gpu };
// Bytes of the memory that is short: RAM, or the GPU's.
std::uint64_t planned_bytes(const MemoryRow& row, MemoryOf of);
std::uint64_t measured_bytes(const MemoryRow& row, MemoryOf of);

// For people: two lines of header, and a line for each row.
std::string memory_header(MemoryOf of);
std::string memory_line(const MemoryRow& row, MemoryOf of);

// Rows whose numerics are promised to be the same and that have other bits; empty: the promise is kept.
std::vector<const MemoryRow*> broken_promises(const std::vector<MemoryRow>& rows);
// How many settings of how many numerics were compared, or which differ.
std::string promise_text(const std::vector<MemoryRow>& rows);

// [{"precision":"fp32",...}, ...]
std::string memory_rows_json(const std::vector<MemoryRow>& rows, MemoryOf of);

}  // namespace strata::launcher

#pragma once
// launcher/measure/memory/ has what `bench memory` compares: settings of one step, and their results as a table and as
// a picture.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"
#include "runtime/plan/plan.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {

// One way to run the same step, for comparison in `bench memory`.
struct MemorySetting {
  device::DType precision;
  runtime::Recompute::Kind recompute;  // none, sqrt or block
  int accumulation;                    // the number of micro-batches into which the step's batch is split
  runtime::Tier optimizer;

  // Whether both settings are promised the same bits. Another precision or number of micro-batches changes them.
  bool same_numerics(const MemorySetting& other) const {
    return precision == other.precision && accumulation == other.accumulation;
  }
};

// Every combination. Each one with the optimizer on the device is followed by the same one with the optimizer
// elsewhere. `only` ("KEY=A,B" for precision, recompute, accumulation and optimizer) excludes others; without
// has_drive, those on NVMe are left out. Throws Error{usage} if an `only` cannot be parsed.
std::vector<MemorySetting> memory_settings(std::span<const std::string> only, bool has_drive);

// The number of sequences in a step of the recipe on one rank; 4 if the recipe does not set its batch.
std::int64_t batch_of(const runtime::Recipe& recipe);

// The recipe with this setting and `steps` steps, without checkpoints, evaluations and control. Throws Error{usage} if
// its batch cannot be divided by the accumulation.
runtime::Recipe recipe_with(runtime::Recipe recipe, const MemorySetting& setting, std::int64_t batch, int steps);

// The result of a run with one setting.
struct MemoryResult {
  std::array<std::uint64_t, runtime::kTiers> measured;  // peak bytes of each tier
  std::uint64_t process;                                // peak bytes of the whole process: resident, or on its GPU
  double step_ms;                                       // median
  double loss;                                          // the loss after the last step
  std::string bits;                                     // the hash of every step's loss and of the weights
};
// A row of the table. A row with neither a result nor a failure has not run yet.
struct MemoryRow {
  MemorySetting setting;
  runtime::Memory planned;
  bool fits = true;
  std::optional<MemoryResult> result = {};
  std::string failure = {};  // why it did not run to the end
};

// Which tiers share a memory. On a CPU, the device tier and the host tier are both in RAM.
enum class MemoryOf : std::uint8_t { cpu, gpu };
// The bytes of the scarce memory: RAM, or that of the GPU.
std::uint64_t planned_bytes(const MemoryRow& row, MemoryOf of);
std::uint64_t measured_bytes(const MemoryRow& row, MemoryOf of);

// Human-readable: two header lines, and one line per row.
std::string memory_header(MemoryOf of);
std::string memory_line(const MemoryRow& row, MemoryOf of);

// Rows whose bits differ from the promised ones; empty if there are none.
std::vector<const MemoryRow*> differing_rows(const std::vector<MemoryRow>& rows);
// Says how many settings with how many different numerics were compared, or which of them differ.
std::string same_bits_text(const std::vector<MemoryRow>& rows);

// [{"precision":"fp32",...}, ...]
std::string memory_rows_json(const std::vector<MemoryRow>& rows, MemoryOf of);

// The memory of the rows that ran over their time, as an SVG for light and dark pages. Each setting is a dot: its
// colour is the precision, its shape the recomputation, its size the number of micro-batches, and its filling the
// optimizer's tier. A dot shows its figures when the pointer is on it. title: the line above, such as the model and its
// batch; device: the line below.
std::string memory_chart(const std::vector<MemoryRow>& rows, MemoryOf of, const std::string& title,
                         const std::string& device);

}  // namespace strata::launcher

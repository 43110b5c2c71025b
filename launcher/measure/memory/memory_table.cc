#include <fmt/format.h>

#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "launcher/measure/memory/memory.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

// The first row with the same numerics that has run; null if there is none.
const MemoryRow* first_of(const std::vector<MemoryRow>& rows, const MemoryRow& row) {
  for (const MemoryRow& other : rows)
    if (other.result && other.setting.same_numerics(row.setting)) return &other;
  return nullptr;
}

std::string words(const MemorySetting& s) {
  return fmt::format("{:<10}{:<10}{:>6}  {:<10}", device::name_of(s.precision), name_of(s.recompute), s.accumulation,
                     runtime::kTierNames[static_cast<std::size_t>(s.optimizer)]);
}

std::uint64_t sum(const MemoryOf of, const std::uint64_t device, const std::uint64_t host) {
  return of == MemoryOf::cpu ? device + host : device;
}

}  // namespace

std::uint64_t planned_bytes(const MemoryRow& row, MemoryOf of) {
  return sum(of, row.planned[0].peak, row.planned[1].peak);
}

std::uint64_t measured_bytes(const MemoryRow& row, MemoryOf of) {
  return row.result ? sum(of, row.result->measured[0], row.result->measured[1]) : 0;
}

std::string memory_header(MemoryOf of) {
  return fmt::format("{:<38}{:^22}\n{:<10}{:<10}{:>6}  {:<10}{:>11}{:>11}{:>11}{:>11}{:>11}  {}\n", "",
                     of == MemoryOf::cpu ? "peak of RAM" : "peak of the GPU", "precision", "recompute", "accum",
                     "optimizer", "planned", "measured", "process", "ms/step", "loss", "bits");
}

std::string memory_line(const MemoryRow& row, MemoryOf of) {
  std::string line = words(row.setting) + fmt::format("{:>11}", bytes_text(planned_bytes(row, of)));
  if (!row.fits) return line + "  does not fit\n";
  if (!row.failure.empty()) return line + "  " + row.failure + "\n";
  if (!row.result) return line + "\n";
  const MemoryResult& r = *row.result;
  return line + fmt::format("{:>11}{:>11}{:>11.1f}{:>11.6f}  {}\n", bytes_text(measured_bytes(row, of)),
                            bytes_text(r.process), r.step_ms, r.loss, r.bits.substr(0, 8));
}

std::vector<const MemoryRow*> differing_rows(const std::vector<MemoryRow>& rows) {
  std::vector<const MemoryRow*> out;
  for (const MemoryRow& row : rows)
    if (row.result && row.result->bits != first_of(rows, row)->result->bits) out.push_back(&row);
  return out;
}

std::string same_bits_text(const std::vector<MemoryRow>& rows) {
  std::size_t ran = 0, numerics = 0;
  for (const MemoryRow& row : rows) {
    ran += row.result ? 1 : 0;
    numerics += row.result && first_of(rows, row) == &row ? 1 : 0;
  }
  if (ran == 0) return "no setting ran\n";
  const auto broken = differing_rows(rows);
  std::string text =
      fmt::format("bits: losses and weights of {} in {}, each with one precision and one micro-batch size:\n",
                  counted(ran, "setting"), counted(numerics, "group"));
  if (broken.empty()) return text + "the same in each group, wherever the optimizer is and whatever is recomputed\n";
  text += fmt::format("{} differ from the first of their group\n", broken.size());
  for (const MemoryRow* row : broken) text += "  " + words(row->setting) + row->result->bits.substr(0, 8) + "\n";
  return text;
}

std::string memory_rows_json(const std::vector<MemoryRow>& rows, MemoryOf of) {
  JsonArray list;
  for (const MemoryRow& row : rows) {
    const MemorySetting& setting = row.setting;
    JsonObject out;
    out.add("precision", device::name_of(setting.precision))
        .add("recompute", name_of(setting.recompute))
        .add("accumulation", setting.accumulation)
        .add("optimizer", runtime::kTierNames[static_cast<std::size_t>(setting.optimizer)])
        .add("fits", row.fits)
        .add("planned_bytes", planned_bytes(row, of));
    for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
      out.add(fmt::format("planned_{}_bytes", runtime::kTierNames[tier]), row.planned[tier].peak);
    if (row.result) {
      for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
        out.add(fmt::format("measured_{}_bytes", runtime::kTierNames[tier]), row.result->measured[tier]);
      out.add("measured_bytes", measured_bytes(row, of))
          .add("process_bytes", row.result->process)
          .add("step_ms", Decimals{row.result->step_ms, 3})
          .add("loss", row.result->loss)
          .add("bits", row.result->bits);
    }
    if (!row.failure.empty()) out.add("failure", row.failure);
    list.add(out);
  }
  return list.text();
}

}  // namespace strata::launcher

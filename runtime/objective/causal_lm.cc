#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "runtime/data/files/tokens.h"
#include "runtime/data/open_data.h"
#include "runtime/objective/rules.h"

namespace strata::runtime {
namespace {

std::optional<std::uint32_t> all_rows(const Recipe&, std::uint32_t) {
  return std::nullopt;
}

// Masks and document boundaries are found through the sidecar: without it, copied files would be trained on completely.
void look_for_sidecars(Workload& workload, const LabelColumn* of_validation) {
  look_for_labels(workload, of_validation);
  std::vector<std::filesystem::path> bare;
  for (const auto& path : data_files(workload.recipe.data))
    if (!read_sidecar(path)) bare.push_back(path);
  if (bare.empty()) return;
  const bool one = bare.size() == 1;
  workload.data.notes.push_back(
      fmt::format("{}{} {} no sidecar ({}): every token is trained on, and it is unknown where documents begin",
                  bare[0].string(), one ? "" : fmt::format(" and {} more", bare.size() - 1), one ? "has" : "have",
                  sidecar_path(bare[0]).filename().string()));
}

}  // namespace

constinit const ObjectiveRules kCausalLm = {nullptr, all_rows, false, true, token_predictions, look_for_sidecars};

}  // namespace strata::runtime

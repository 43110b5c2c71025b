#include "runtime/job/search/algorithms.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "comm/agreement.h"

namespace strata::runtime {
namespace {

std::vector<device::ProductShape> products_of(const models::Model& model) {
  std::vector<device::ProductShape> all, each;
  for (const auto& unit : model.units) unit->list_products(all);
  for (const device::ProductShape& shape : all)
    if (std::find(each.begin(), each.end(), shape) == each.end()) each.push_back(shape);
  return each;
}

// Returns the table in the file, completed with the products that it lacked.
device::AlgorithmTable complete_table(const Job& job, const std::string& machine,
                                      const std::function<void(const std::string&)>& note) {
  const auto file = device::algorithm_file(machine);
  device::AlgorithmTable table = device::load_algorithms(file, machine);
  const std::uint64_t before = table.hash();
  const auto products = products_of(*job.model);
  if (table.size() == 0) note(fmt::format("timing {} products for {}, once", products.size(), machine));
  device::search_algorithms(job.plan.device, products, table);
  if (table.hash() == before || file.empty()) return table;
  try {
    device::save_algorithms(table, file);
    note(fmt::format("algorithms of {} products saved in {}", table.size(), file.string()));
  } catch (const Error& error) {  // the run has its table, but the next run has to time the products again
    note(fmt::format("the algorithms of products could not be saved: {}", error.what()));
  }
  return table;
}

}  // namespace

std::shared_ptr<const device::AlgorithmTable> agree_on_algorithms(const Job& job, comm::World& world,
                                                                  const std::function<void(const std::string&)>& note) {
  const std::string machine = device::algorithm_machine(job.plan.device);
  const std::vector<std::string> machines = world.exchange(machine);
  for (std::size_t r = 1; r < machines.size(); ++r)
    if (machines[r] != machines[0])
      throw comm::AgreedError(
          Exit::usage, fmt::format("rank 0 computes on {} and rank {} on {}: start ranks on one kind of GPU, with "
                                   "one version of its libraries",
                                   machines[0], r, machines[r]));
  if (machine.empty()) return nullptr;
  std::string text;
  comm::agree(world, [&] {
    if (world.rank() == 0) text = complete_table(job, machine, note).text();
  });
  return std::make_shared<const device::AlgorithmTable>(
      device::AlgorithmTable::parse(world.exchange(text)[0], "rank 0's algorithms"));
}

void use_saved_algorithms(Executor& executor, const std::string& saved, const std::string& origin,
                          const std::function<void(const std::string&)>& note) {
  const auto own = executor.algorithms();
  if (!own || saved.empty()) return;
  auto table = std::make_shared<const device::AlgorithmTable>(device::AlgorithmTable::parse(saved, origin));
  if (table->machine() == own->machine()) return executor.use_algorithms(std::move(table));
  note(fmt::format("{} was computed on {}: on {} its bits differ from here on", origin, table->machine(),
                   own->machine()));
}

}  // namespace strata::runtime

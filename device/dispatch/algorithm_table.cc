#include "device/algorithm_table.h"

#include "device/backend.h"

namespace strata::device {

std::string algorithm_machine(Device device) {
  const auto ask = backend(device.kind).algorithm_machine;
  return ask ? ask(device) : "";
}

void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table) {
  if (const auto search = backend(device.kind).search_algorithms) search(device, shapes, table);
}

void use_algorithms(Lane& lane, const std::shared_ptr<const AlgorithmTable>& table) {
  lane.impl().use_algorithms(table);
}

}  // namespace strata::device

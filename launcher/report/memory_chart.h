#pragma once
#include <string>
#include <vector>

#include "launcher/measure/memory/memory_table.h"

namespace strata::launcher {

// Memory against time of the rows that ran, as an SVG for light and dark pages: a dot per setting, its colour the
// precision, its shape the recomputation, its size the number of micro-batches, its filling where the optimizer is;
// each says its figures when pointed at. title: above it, such as the model and its batch; device: below it.
std::string memory_chart(const std::vector<MemoryRow>& rows, MemoryOf of, const std::string& title,
                         const std::string& device);

}  // namespace strata::launcher

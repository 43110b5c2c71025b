#pragma once
#include <string>
#include <vector>

#include "launcher/measure/memory/memory_table.h"

namespace strata::launcher {

// Memory over time of the rows that ran, as an SVG for light and dark pages. One dot per setting: its colour is the
// precision, its shape the recomputation, its size the number of micro-batches, its filling the optimizer's tier. Each
// shows its figures when pointed at. title: the line above, such as the model and its batch; device: the line below.
std::string memory_chart(const std::vector<MemoryRow>& rows, MemoryOf of, const std::string& title,
                         const std::string& device);

}  // namespace strata::launcher

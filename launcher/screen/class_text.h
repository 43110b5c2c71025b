#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/run/metrics/score_collector.h"

namespace strata::launcher {

// What `strata eval` prints about a classifier: its metrics, a table of classes, and the confusion matrix if there are
// few classes. The matrix's columns have names if they fit, otherwise numbers. Lines are at most `columns` wide; what
// does not fit is left to --json, and a line says so. of: what was judged, "texts" or "words".
std::string class_text(const runtime::ClassReport& report, std::span<const std::string> names, std::string_view of,
                       std::size_t columns);

}  // namespace strata::launcher

#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/run/metrics/score_collector.h"

namespace strata::launcher {

// What `strata eval` says of a classifier: its metrics, a table of classes, and the confusion matrix of few classes,
// whose columns have names if they fit, else numbers; in lines of at most `columns`, or it says that --json has more.
// of: what was judged, "texts" or "words".
std::string class_text(const runtime::ClassReport& report, std::span<const std::string> names, std::string_view of,
                       std::size_t columns);

}  // namespace strata::launcher

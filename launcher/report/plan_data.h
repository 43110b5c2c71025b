#pragma once
#include <span>
#include <string>

#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/plan/span.h"

namespace strata::launcher {

// A plan as the pages draw it, and as a run writes it to plan.json in report.dir (docs/formats.md): tasks with lane,
// name, simulated times and waits; buffers with place and lifetime; memory by kind; where the step's time goes. speeds:
// a sentence on what the times are based on.
std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds);

// A page's sentence about its times: "Simulated with the speeds of a machine file".
std::string speeds_text(bool machine_file, bool measured);

}  // namespace strata::launcher

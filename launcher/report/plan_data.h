#pragma once
#include <span>
#include <string>

#include "runtime/forecast/simulator.h"
#include "runtime/job/make_job.h"
#include "runtime/plan/span.h"

namespace strata::launcher {

// A plan as the pages draw it, and as a run leaves it in report.dir's plan.json (docs/formats.md): tasks with lane,
// name, simulated times and waits; buffers with place and life; memory by kind; what the step's time goes to. speeds: a
// sentence on what the times are of.
std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds);

// "Simulated with the speeds of a machine file": what a page says of its times.
std::string speeds_text(bool machine_file, bool measured);

}  // namespace strata::launcher

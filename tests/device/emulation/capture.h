#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "device/graph.h"
#include "device/lane_impl.h"
#include "tests/device/recorded_work.h"

namespace strata::device::emulation {

// A graph during its recording and afterwards.
struct Capture {
  testing::RecordedWork work;
  bool over = false;
};

// An event's place in a capture: where in it the newest record is. Only for events that emulated device lanes record.
class CapturedRecord final : public Event::Twin {
 public:
  explicit CapturedRecord(bool for_hosts) : host_waits(for_hosts) {}

  const bool host_waits;
  std::shared_ptr<Capture> capture;  // null: its newest record was none of a capture
  std::size_t at = 0;

  bool reached(std::uint64_t) override;
  void signal(std::uint64_t) override {}
};

std::unique_ptr<Graph::Impl> capture(Lane& lane, const std::function<void()>& issue);

}  // namespace strata::device::emulation

#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "device/graph.h"
#include "device/lane_impl.h"
#include "tests/device/recorded_work.h"

namespace strata::device::emulation {

// A graph while it is recorded, and after.
struct Capture {
  testing::RecordedWork work;
  bool over = false;
};

// What an event that lanes of the emulated device record remembers of a capture: where in it its newest record is.
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

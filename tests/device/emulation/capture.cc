#include "tests/device/emulation/capture.h"

#include "base/error.h"
#include "tests/device/emulation/lane.h"

namespace strata::device::emulation {
namespace {

class EmulatedGraph final : public Graph::Impl {
 public:
  explicit EmulatedGraph(std::shared_ptr<const Capture> captured) : captured_(std::move(captured)) {}
  void launch(Lane& lane) override {
    static_cast<EmulatedLane&>(lane.impl()).submit([captured = captured_] { captured->work.run(); });
  }

 private:
  std::shared_ptr<const Capture> captured_;
};

}  // namespace

// The host never waits for a captured event, because host lanes take no part in a capture.
bool CapturedRecord::reached(std::uint64_t) {
  invariant_failed(__FILE__, __LINE__, "reached()", "an emulated device has no records of its own");
}

std::unique_ptr<Graph::Impl> capture(Lane& lane, const std::function<void()>& issue) {
  auto& origin = static_cast<EmulatedLane&>(lane.impl());
  const auto captured = std::make_shared<Capture>();
  origin.begin_capture(captured);
  try {
    issue();
  } catch (...) {
    captured->over = true;
    throw;
  }
  const std::size_t last = origin.captured_last();
  captured->over = true;
  if (!captured->work.all_before(last)) fail(Exit::failed, "the capture ends before all lanes are joined");
  return std::make_unique<EmulatedGraph>(captured);
}

}  // namespace strata::device::emulation

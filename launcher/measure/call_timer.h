#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "launcher/measure/reference_block.h"
#include "launcher/screen/progress.h"

namespace strata::launcher {

// A measured figure in human-readable form. spread: half of the range from the 10th to the 90th percentile of its
// calls, relative to the median.
struct Figure {
  std::string what, unit;
  double value, spread;
};

// Times calls, and keeps the seconds of all passes for each figure, so that a disturbance of some seconds affects a few
// calls of each figure instead of all calls of one. All passes must measure in the same order.
class CallTimer {
 public:
  // The seconds of each call of a group, over all passes.
  using Samples = std::vector<std::vector<double>>;

  // seconds: the time for each group, over all passes.
  CallTimer(double seconds, int passes, comm::World& world);

  void begin_pass();
  // The samples of the next figure, one entry per group.
  std::vector<Samples>& next(std::size_t groups);
  // The seconds of each group, as the sum of its calls. Groups take turns, after a round that does not count, on all
  // ranks at the same time.
  std::vector<double> time(device::Lane& lane, const std::vector<Calls>& groups);
  double time_one(device::Lane& lane, const std::function<void()>& call) { return time(lane, {Calls{call}})[0]; }
  // The seconds of a collective that all ranks call at the same time.
  double time_collective(device::Lane& lane, const std::function<void()>& collective);

  // Records a figure, with the spread of group `group` of the newest samples.
  void show(std::string what, std::string unit, double value, std::size_t group);
  // Returns the figures of the newest pass, and ends the display of progress.
  std::vector<Figure> take_figures();

 private:
  const double seconds_;
  const int passes_;
  comm::World& world_;
  std::vector<std::vector<Samples>> samples_;  // one per figure and group
  std::size_t next_ = 0;
  int pass_ = -1;
  std::vector<Figure> figures_;
  Activity activity_;
};

}  // namespace strata::launcher

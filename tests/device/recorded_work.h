#pragma once
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace strata::device::testing {

// What streams of a device that is none are given while a graph is recorded. Runs in the order that the streams and
// their events say, and where they say none, in another than that in which it was given: a dependency that is missing
// shows.
class RecordedWork {
 public:
  using Work = std::function<void()>;

  // Work after other work; returns its number. May be empty: a point that other work comes after.
  std::size_t add(Work work, std::vector<std::size_t> after) {
    nodes_.push_back({std::move(work), std::move(after)});
    return nodes_.size() - 1;
  }

  // Whether everything is before this one, as it must be once all streams are joined.
  bool all_before(std::size_t last) const {
    std::vector<bool> before(nodes_.size());
    before[last] = true;
    for (std::size_t n = nodes_.size(); n-- > 0;) {
      if (!before[n]) return false;
      for (const std::size_t earlier : nodes_[n].after) before[earlier] = true;
    }
    return true;
  }

  // Runs the last given of all work that could run next.
  void run() const {
    std::vector<std::size_t> left(nodes_.size());
    std::vector<std::vector<std::size_t>> next(nodes_.size());
    std::priority_queue<std::size_t> ready;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      left[n] = nodes_[n].after.size();
      for (const std::size_t earlier : nodes_[n].after) next[earlier].push_back(n);
      if (left[n] == 0) ready.push(n);
    }
    while (!ready.empty()) {
      const std::size_t n = ready.top();
      ready.pop();
      if (nodes_[n].work) nodes_[n].work();
      for (const std::size_t later : next[n])
        if (--left[later] == 0) ready.push(later);
    }
  }

 private:
  struct Node {
    Work work;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes_;
};

}  // namespace strata::device::testing

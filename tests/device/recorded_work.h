#pragma once
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace strata::device::testing {

// The work that streams of an emulated device receive while a graph is recorded. It runs in the order that streams and
// events require, and otherwise not in the order in which it was given, so that a missing dependency shows.
class RecordedWork {
 public:
  using Work = std::function<void()>;

  // Adds work that runs after other work; returns its number. Empty work is a point after which other work comes.
  std::size_t add(Work work, std::vector<std::size_t> after) {
    nodes_.push_back({std::move(work), std::move(after)});
    return nodes_.size() - 1;
  }

  // Whether all work comes before this node, as it must once all streams are joined.
  bool all_before(std::size_t last) const {
    std::vector<bool> before(nodes_.size());
    before[last] = true;
    for (std::size_t n = nodes_.size(); n-- > 0;) {
      if (!before[n]) return false;
      for (const std::size_t earlier : nodes_[n].after) before[earlier] = true;
    }
    return true;
  }

  // Among all work that could run next, it runs the work that was added last.
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

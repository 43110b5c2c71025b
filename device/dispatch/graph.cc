#include "device/graph.h"

#include "base/error.h"
#include "device/backend.h"

namespace strata::device {

bool Graph::possible(Device device) {
  return backend(device.kind).capture != nullptr;
}

Graph::Graph(Lane& lane, const std::function<void()>& issue) {
  STRATA_CHECK(possible(lane.device()));
  impl_ = backend(lane.device().kind).capture(lane, issue);
}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::launch(Lane& lane) const {
  impl_->launch(lane);
}

}  // namespace strata::device

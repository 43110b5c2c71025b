#include "device/lane.h"

#include <chrono>

#include "base/error.h"
#include "device/algorithm_table.h"
#include "device/backend.h"
#include "device/fault_watch.h"
#include "device/graph.h"

namespace strata::device {

Event::Event(Device device, bool host_waits) : state_(std::make_unique<State>()) {
  state_->host_waits = host_waits;
  state_->twin = backend(device.kind).make_event(device, host_waits);
}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

bool Event::passed() const {
  STRATA_CHECK(state_->recorder == Kind::cpu);
  const std::lock_guard lock(state_->mutex);
  return state_->done >= state_->issued;
}

void Event::wait(const AbortToken& abort) const {
  constexpr auto kPoll = std::chrono::milliseconds(50);
  STRATA_CHECK(state_->recorder == Kind::cpu);
  std::unique_lock lock(state_->mutex);
  while (!state_->reached.wait_for(lock, kPoll, [&] { return state_->done >= state_->issued; })) abort.throw_if_set();
  lock.unlock();
  abort.throw_if_set();  // records are reached even after an abort, although the work before them was dropped
}

Lane::Lane(std::string name, int threads, int rank, AbortToken& abort, Device device)
    : impl_(backend(device.kind).make_lane(std::move(name), device, threads, rank, abort)) {}
Lane::~Lane() = default;
Lane::Lane(Lane&&) noexcept = default;

const std::string& Lane::name() const {
  return impl_->name;
}
int Lane::threads() const {
  return impl_->threads();
}
AbortToken& Lane::abort() const {
  return impl_->abort;
}
Device Lane::device() const {
  return impl_->device;
}
const Operations& Lane::operations() const {
  return impl_->operations;
}

void Lane::record(Event& event) {
  event.state().of_device = impl_->device.kind != Kind::cpu;
  impl_->record(event.state());
}
void Lane::wait(const Event& event) {
  const Event::State& state = event.state();
  STRATA_CHECK(impl_->device.kind != Kind::cpu || !state.of_device || state.host_waits);
  impl_->wait(event.state());
}
void Lane::stamp(std::int64_t* where) {
  impl_->stamp(where);
}
void Lane::synchronize() {
  impl_->synchronize();
}

Range::Range(Lane& lane, const char* name) : lane_(lane) {
  lane_.impl().begin_range(name);
}
Range::~Range() {
  lane_.impl().end_range();
}

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

FaultWatch::FaultWatch(Device device, int rank, AbortToken& abort) {
  if (const auto make = backend(device.kind).make_fault_watch) impl_ = make(device, rank, abort);
}
FaultWatch::~FaultWatch() = default;

std::string algorithm_machine(Device device) {
  const auto ask = backend(device.kind).algorithm_machine;
  return ask ? ask(device) : "";
}

void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table) {
  if (const auto search = backend(device.kind).search_algorithms) search(device, shapes, table);
}

void use_algorithms(Lane& lane, const std::shared_ptr<const AlgorithmTable>& table) {
  lane.impl().use_algorithms(table);
}

}  // namespace strata::device

#include "launcher/control/watch/node_liveness.h"

#include <algorithm>
#include <utility>

namespace strata::launcher::control {
namespace {

constexpr double kBroken = 3;
// A node that is heard from again after this many seconds was cut off or stalled, which is reported because it delayed
// the run.
constexpr double kSilentNode = 5;

}  // namespace

bool NodeLiveness::is_known() const {
  return state_ == State::present || state_ == State::broken || state_ == State::lost;
}

void NodeLiveness::record_contact(double now) {
  if (const double silence = now - heard_; is_known() && silence >= kSilentNode) silence_ = std::max(silence_, silence);
  heard_ = now;
  if (state_ != State::lost && state_ != State::left) state_ = State::present;
}

void NodeLiveness::lose_connection(double now) {
  if (state_ != State::present || now - heard_ >= kBroken) return;
  state_ = State::broken;
  broke_ = now;
}

void NodeLiveness::resume(double now) {
  heard_ = now;
  if (state_ == State::broken) state_ = State::present;
}

NodeLiveness::Change NodeLiveness::look(double now, double timeout) {
  const bool silent = timeout > 0 && now - heard_ >= timeout;
  if (state_ == State::unreached && silent) {
    state_ = State::unreachable;
    return Change::unreachable;
  }
  if (state_ != State::present && state_ != State::broken) return Change::none;
  const bool ended = state_ == State::broken && now - broke_ >= kBroken;
  if (!silent && !ended) return Change::none;
  state_ = State::lost;
  return silent ? Change::silent : Change::ended;
}

double NodeLiveness::take_silence() {
  const double silence = std::exchange(silence_, 0);
  return state_ == State::lost || state_ == State::left ? 0 : silence;
}

}  // namespace strata::launcher::control

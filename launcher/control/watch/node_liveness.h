#pragma once
#include <cstdint>

namespace strata::launcher::control {

// What one end of a stream knows about the node at the other end: rank 0 about each node (Watch), and each node about
// rank 0 (RankMonitor). It does not depend on threads, sockets or clocks: `now` is in seconds on any clock.
//
//   state        | heard    | left | broke       | look
//   -------------+----------+------+-------------+--------------------------------------------------
//   unreached    | present  | left | -           | unreachable, after the timeout: Change::unreachable
//   unreachable  | present  | left | -           | -
//   present      | present  | left | broken *    | lost, after the timeout: Change::silent
//   broken       | present  | left | -           | lost, after the timeout: Change::silent; or 3 s after it broke:
//                |          |      |             | Change::ended
//   lost         | -        | left | -           | -
//   left         | -        | -    | -           | -
//
//   * Only if it broke within 3 s of the newest report: then it ended together with the process, or the node connects
//     again. A connection that breaks later was cut by the network, and the timeout decides.
class NodeLiveness {
 public:
  enum class State : std::uint8_t { unreached, unreachable, present, broken, lost, left };
  enum class Change : std::uint8_t { none, unreachable, silent, ended };

  explicit NodeLiveness(double now, State state = State::unreached) : state_(state), heard_(now) {}

  State state() const { return state_; }
  // Whether the node has been heard from since the start and has not left.
  bool is_known() const;
  double heard() const { return heard_; }

  void record_contact(double now);
  void leave() { state_ = State::left; }
  void lose_connection(double now);
  // Called if the caller itself was stopped until now and received nothing. Silence counts from here.
  void resume(double now);
  // The change that the passage of time causes. timeout: seconds; 0: never.
  Change look(double now, double timeout);

  // How long the node was silent before it was heard from again, returned once; 0 if that was less than 5 s.
  double take_silence();

 private:
  State state_;
  double heard_, broke_ = 0;
  double silence_ = 0;
};

}  // namespace strata::launcher::control

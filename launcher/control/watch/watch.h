#pragma once
// launcher/control/watch/ finds lost nodes and stalled ranks (here). Every rank's rank_monitor.h sends its place
// through node_stream.h to rank 0's hub.h, which gives the verdict. node_liveness.h holds what one end of a stream
// knows about the other end.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/control/watch/node_liveness.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/rank_view.h"

namespace strata::launcher::control {

// Finds lost nodes and stalled ranks from the places that all ranks report. All ranks of a run have the same list of
// tasks, so comparing their places shows the rank for which the others wait. It does not depend on threads, sockets or
// clocks: `now` is in seconds on any clock.
class Watch {
 public:
  struct Limits {
    double timeout, warn_after, stuck_after;  // seconds; 0: never
  };
  struct Finding {
    enum class Kind : std::uint8_t { warning, recovered, stuck, lost, unknown };
    Kind kind;
    int rank;          // the rank at fault; for a lost node, its first rank
    std::string text;  // a sentence for the user, which the caller completes
  };

  Watch(const Limits& limits, NodeMap map, double now);
  void set_names(TaskNames names) { names_ = std::move(names); }
  const TaskNames& names() const { return names_; }

  // Called when a node has reported. left(): when it has announced that it leaves. broke(): when its connection broke
  // without such an announcement.
  void heard(int node, std::span<const RankView> ranks, double now);
  void left(int node);
  void broke(int node, double now);

  // Called if the caller itself was stopped until now and received nothing. Every node then counts as heard from.
  void resume(double now);

  std::vector<Finding> look(double now);

  const std::vector<RankView>& ranks() const { return ranks_; }
  double heard_ago(int node, double now) const;
  // The rank with the longest compute time if that is 5% above the median; otherwise -1.
  int slowest() const;
  double median_compute() const;

 private:
  struct Still {  // per rank: since when its phase has made no progress, and the last warning
    std::uint64_t counter = 0;
    runtime::Phase phase = runtime::Phase::starting;
    double since = 0;
    std::string warned;
  };
  struct InPlace {
    double age, limit;  // seconds in this place, and the number of seconds after which that is too long
    bool stopped;       // its process is not running
    bool is_stalled() const { return age > 0 && age >= limit; }
  };
  struct Stalled {
    int rank;
    double age;
    bool stopped;  // its process is not running
  };
  std::vector<Finding> find_missed(double now);
  std::optional<Finding> find_returned();
  bool is_watched(const RankView& rank) const;
  InPlace in_place(const RankView& rank, double now) const;
  std::optional<Stalled> stalled_rank(double now) const;
  // "; ranks 2 and 3 wait for it in 'gather block 4' (group of ranks 0 to 3)"; empty if no rank waits.
  std::string waiting_text(const Stalled& found, double now) const;

  Limits limits_;
  double stall_limit_;  // a rank without progress for this long has stalled: the shortest limit that is set
  NodeMap map_;
  TaskNames names_;
  std::vector<RankView> ranks_;
  std::vector<double> reported_;  // per rank: when it last reported
  std::vector<NodeLiveness> nodes_;
  std::vector<Still> still_;
};

// "rank 3", "ranks 8 to 15", "ranks 0, 2".
std::string ranks_text(std::span<const int> ranks);
// If several ranks hold the model together, the text includes their coordinates: "ranks 4 to 5: data 0 to 1, stage 1".
std::string ranks_text(std::span<const int> ranks, const runtime::Mesh& mesh);
// 30, 61, 0.5
std::string seconds_text(double seconds);

}  // namespace strata::launcher::control

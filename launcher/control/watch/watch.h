#pragma once
// launcher/control/watch/ finds what is lost or stands still (here). Every rank's rank_monitor.h sends its place
// through node_stream.h to rank 0's hub.h, which gives the verdict. node_life.h holds what one end knows of the other.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/control/watch/node_life.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/rank_view.h"

namespace strata::launcher::control {

// Finds nodes that are lost and ranks that stand still, from the places that all ranks report. All ranks of a run go
// through the same list of tasks, so comparing their places names the rank that the others wait for. It knows nothing
// of threads, sockets or clocks: `now` is in seconds on any clock.
class Watch {
 public:
  struct Limits {
    double timeout, warn_after, stuck_after;  // seconds; 0: never
  };
  struct Finding {
    enum class Kind : std::uint8_t { warning, recovered, stuck, lost, unknown };
    Kind kind;
    int rank;          // whose fault it is; of a lost node, its first rank
    std::string text;  // a sentence for the user; the caller adds how it ends
  };

  Watch(const Limits& limits, NodeMap map, double now);
  void know(TaskNames names) { names_ = std::move(names); }
  const TaskNames& names() const { return names_; }

  // A node was heard of; left: it said goodbye; broke: its connection broke without that.
  void heard(int node, std::span<const RankView> ranks, double now);
  void left(int node);
  void broke(int node, double now);

  // The caller was itself stopped until now and heard nobody: every node counts as heard from.
  void resume(double now);

  std::vector<Finding> look(double now);

  const std::vector<RankView>& ranks() const { return ranks_; }
  double heard_ago(int node, double now) const;
  // The rank with the longest compute time, if that is 5% above the median; -1 otherwise.
  int slowest() const;
  double median_compute() const;

 private:
  struct Still {  // per rank: since when its phase has made no progress, and what was warned of
    std::uint64_t counter = 0;
    runtime::Phase phase = runtime::Phase::starting;
    double since = 0;
    std::string warned;
  };
  struct InPlace {
    double age, limit;  // seconds in this place, and after how many that is too long
    bool stopped;       // its process does not run
    bool stands() const { return age > 0 && age >= limit; }
  };
  struct Standing {
    int rank;
    double age;
    bool stopped;  // its process does not run
  };
  std::vector<Finding> find_missed(double now);
  std::optional<Finding> find_returned();
  bool is_watched(const RankView& rank) const;
  InPlace in_place(const RankView& rank, double now) const;
  std::optional<Standing> culprit(double now) const;
  // "; ranks 2 and 3 wait for it in 'gather block 4' (group of ranks 0 to 3)"; empty if nobody waits.
  std::string waiting_text(const Standing& found, double now) const;

  Limits limits_;
  double stands_;  // a rank without progress for so long stands still: the shortest limit that is set
  NodeMap map_;
  TaskNames names_;
  std::vector<RankView> ranks_;
  std::vector<double> told_;  // by rank: when it last reported
  std::vector<NodeLife> nodes_;
  std::vector<Still> still_;
};

// "rank 3", "ranks 8 to 15", "ranks 0, 2".
std::string ranks_text(std::span<const int> ranks);
// With their coordinates, if several ranks hold the model together: "ranks 4 to 5: data 0 to 1, stage 1".
std::string ranks_text(std::span<const int> ranks, const runtime::Mesh& mesh);
// 30, 61, 0.5
std::string seconds_text(double seconds);

}  // namespace strata::launcher::control

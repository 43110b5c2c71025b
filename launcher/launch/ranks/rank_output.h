#pragma once
#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/abort.h"
#include "launcher/launch/log_file.h"
#include "launcher/launch/ranks/allocation.h"
#include "runtime/plan/layout/mesh.h"

namespace strata::launcher {

// Writes lines in a separate thread, so that a terminal or file system that hangs delays no other thread. Lines that do
// not fit into the queue are lost, and a line in their place says how much is missing. `to` is the caller's number for
// a destination: a file or a stream.
class LineWriter {
 public:
  using Write = std::function<void(int to, const std::string& text)>;

  // most: bytes that may be queued. timeout: seconds that the destructor waits for queued lines. After that it leaves
  // the thread running, possibly in a call of `write` that never returns, so `write` must own what it uses.
  LineWriter(const std::string& name, Write write, std::size_t most, double timeout);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void add(int to, std::string text);
  // Waits for at most `seconds` until everything is written. False if something is not.
  bool drain(double seconds);

 private:
  // Outlives this object if the thread does.
  struct Queue {
    struct Line {
      int to;
      std::string text;
    };
    void work();

    Write write;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Line> lines;
    std::size_t bytes = 0, lost = 0;
    int lost_to = 0;  // destination of the first lost line
    bool writing = false, over = false;
  };
  void add_lost_note();

  std::shared_ptr<Queue> queue_;
  std::size_t most_;
  double timeout_;
};

// Writes the output of a launch (its own and that of its ranks) to the screen. Up to some MiB are buffered while the
// screen is blocked (Ctrl-S, | less). The destructor waits a second for the rest; drain() waits longer.
class LaunchScreen {
 public:
  LaunchScreen();
  // Writes complete lines to standard error or standard output.
  void write(bool is_error, std::string text);
  // Writes "strata: TEXT" on one line, or with its line breaks if `lines`.
  void note(std::string_view text, bool lines = false);
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    note(fmt::format(format, std::forward<Args>(args)...));
  }
  // False if something is not written within this many seconds.
  bool drain(double seconds) { return writer_.drain(seconds); }

 private:
  LineWriter writer_;
};

// Sends the ranks' output to the screen and, with `logs`, to one file per rank. The output of mpirun, srun or ssh goes
// to launch.log, and never becomes part of a rank's last sentence. A blocked screen or folder does not delay the ranks:
// up to some MiB of lines are buffered, and further lines are lost.
class RankOutput {
 public:
  // The screen must outlive it. Throws Error{usage} if a file must be opened now and cannot be.
  RankOutput(Starter starter, LaunchScreen& screen, const std::optional<std::filesystem::path>& logs, int ranks,
             LogFile::Open open = LogFile::Open::now);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Takes a line of the starter's standard output or error.
  void take(bool is_error, std::string_view line);
  // Call this when the starter has ended. The rest of the output counts as a line even without a line break.
  void finish();
  // Waits for at most `seconds` until everything is written. False if something is not.
  bool drain(double seconds);

  // The sentence with which a rank ended (print_failure()), without "strata: "; empty if there is none.
  const std::string& failure() const { return failure_; }
  // The exit code that this rank announced, and its reason.
  std::optional<int> failure_code() const { return failure_code_; }
  EndReason end_reason() const { return end_reason_; }
  // The last line of a rank that began with "strata: ", without that prefix, or its last step ("step 3/200"). Empty if
  // there is none.
  const std::string& last_message() const { return last_message_; }
  // Whether any rank has printed anything yet.
  bool heard() const { return heard_; }
  // The last lines that the starter itself printed.
  const std::vector<std::string>& starter_output() const { return starter_output_; }

 private:
  void keep(std::string_view line);
  void say(int rank, bool is_error, std::string_view text);
  void show(bool is_error, const std::string& line);
  void print_log_failure();

  Starter starter_;
  bool live_;          // steps overwrite each other, on a terminal
  bool open_ = false;  // the live line has no line break yet
  bool heard_ = false;
  std::map<std::pair<int, bool>, std::string> pieces_;  // unfinished lines, by rank and is_error
  // paragraph_: the last line that began with "strata: ", and the lines that the same rank printed after it.
  std::string failure_, paragraph_, last_message_;
  std::optional<int> failure_code_;
  EndReason end_reason_;
  int paragraph_rank_ = -1;
  bool in_paragraph_ = false;
  std::vector<std::string> starter_output_;
  std::filesystem::path folder_;             // the folder of the logs
  std::shared_ptr<LogFailure> log_failure_;  // shared with the writer, which may outlive this object
  std::optional<LineWriter> logs_;
  LaunchScreen& screen_;
};

// The cause according to the messages of mpirun or srun, in this program's words: the rank that a signal ended, or the
// file that was not found. Empty if no message is known. The rank is named as in `mesh`.
std::string cause_in(const std::vector<std::string>& starter_output, const std::vector<Share>& shares,
                     const runtime::Mesh& mesh = {});

}  // namespace strata::launcher

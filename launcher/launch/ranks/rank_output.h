#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/end_reason.h"
#include "launcher/launch/log_file.h"
#include "launcher/launch/ranks/allocation.h"
#include "launcher/launch/ranks/line_writer.h"

namespace strata::launcher {

// What is written on the screen of a launch, by its ranks and by itself: it waits while the screen takes nothing
// (Ctrl-S, | less), up to some MiB, and at the end for as long as it takes.
class LaunchScreen {
 public:
  LaunchScreen();
  // Of standard error, or standard output; whole lines.
  void write(bool is_error, std::string text);
  // "strata: TEXT", in one line, or in as many as it has.
  void note(std::string_view text, bool lines = false);
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    note(fmt::format(format, std::forward<Args>(args)...));
  }
  // False if not all is written within so many seconds.
  bool drain(double seconds) { return writer_.drain(seconds); }

 private:
  LineWriter writer_;
};

// What ranks say goes to the screen, and with `logs` into a file per rank; what mpirun, srun or ssh themselves say is
// kept apart, into launch.log, as it says no more than the ranks' own last sentence if there is one. A screen or a
// folder that takes nothing holds nobody up: lines wait for it, up to some MiB, and then are lost.
class RankOutput {
 public:
  // The screen outlives it. Throws Error{usage} if files are opened now and one cannot be.
  RankOutput(Starter starter, LaunchScreen& screen, const std::optional<std::filesystem::path>& logs, int ranks,
             LogFile::Open open = LogFile::Open::now);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // A line of the starter's standard output or error.
  void take(bool is_error, std::string_view line);
  // The starter has ended: what ranks said without a line break is taken for a line.
  void finish();
  // Waits for so many seconds at most until all of it is written. False if it is not.
  bool drain(double seconds);

  // The sentence that a rank ended with (complain()), without "strata: "; empty: none did.
  const std::string& complaint() const { return complaint_; }
  // The exit code that this rank said it ends with, and why.
  std::optional<int> complaint_code() const { return complaint_code_; }
  EndReason end_reason() const { return end_reason_; }
  // The last line of a rank that began with "strata: ", without that, or the last step ("step 3/200"); empty: none.
  const std::string& last_words() const { return last_words_; }
  // Whether a rank has said anything yet.
  bool heard() const { return heard_; }
  // What the starter said itself last.
  const std::vector<std::string>& of_starter() const { return of_starter_; }

 private:
  void keep(std::string_view line);
  void say(int rank, bool is_error, std::string_view text);
  void show(bool is_error, const std::string& line);
  void tell_failure();

  Starter starter_;
  bool live_;          // steps go over each other, on a terminal
  bool open_ = false;  // the live line has no line break yet
  bool heard_ = false;
  std::map<std::pair<int, bool>, std::string> pieces_;  // of lines that have not ended, by rank and is_error
  // paragraph_: the last line that began with "strata: ", and what the same rank said behind it.
  std::string complaint_, paragraph_, last_words_;
  std::optional<int> complaint_code_;
  EndReason end_reason_;
  int speaker_ = -1;
  bool in_paragraph_ = false;
  std::vector<std::string> of_starter_;
  std::filesystem::path folder_;         // of the logs
  std::shared_ptr<LogFailure> failure_;  // shared with the writer, which may outlive this
  std::optional<LineWriter> logs_;
  LaunchScreen& screen_;
};

// Of what mpirun or srun said, the cause in a sentence of ours: the rank that a signal ended, what was not found.
// Empty: it says nothing that is known.
std::string cause_in(const std::vector<std::string>& of_starter, const std::vector<Share>& shares);

}  // namespace strata::launcher

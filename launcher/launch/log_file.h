#pragma once
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/descriptor.h"

namespace strata::launcher {

// A file under --logs to which lines are appended. A refused write (full disk) loses its line but never ends the run.
// Once there is space again, a line in the file says how many are missing. A file that was removed is created again,
// with its folder.
class LogFile {
 public:
  // How refused lines are handled. `count`: they are lost, and the next line that fits follows a line with their
  // number. `keep`: they wait in memory for the next write; for files of few lines that a program reads.
  enum class Refused { count, keep };
  // `later` is for restarts, which must not fail because of logs: the first write that finds or can create the folder
  // opens the file.
  enum class Open { now, later };

  // Throws Error{usage} if the file cannot be opened now.
  explicit LogFile(std::filesystem::path path, Refused refused = Refused::count, Open open = Open::now);
  // `line` ends with a line break. Returns the errno of a refused write; 0 if all was written.
  int write(std::string_view line);

 private:
  // Both return their errno; 0 if the file is open.
  int open();
  int open_if_removed();
  // Writes as much as possible. Returns the number of bytes written and the errno that ended the write.
  std::pair<std::size_t, int> append(std::string_view text) const;

  std::filesystem::path path_;
  Descriptor file_;
  Refused refused_;
  std::size_t lost_ = 0;  // refused lines
  bool cut_ = false;      // the last line in the file has no line break
  std::string rest_;      // with `keep`: what was refused
};

// Keeps the first write to a folder's files that was refused, and reports it once.
class LogFailure {
 public:
  // Callable from any thread.
  void set(int error);
  // "--logs: ..." if a write was refused and this was not asked before; empty otherwise.
  std::string take(const std::filesystem::path& folder);

 private:
  std::atomic<int> error_ = 0;
  std::atomic<bool> reported_ = false;
};

inline constexpr std::string_view kEventsFile = "events.jsonl";

// An event of a launch, for programs that read events.jsonl.
struct Event {
  std::string_view kind;  // start, end, restart, node_lost, node_held, refused
  std::vector<std::string> nodes;
  std::optional<int> ranks, exit;
  std::string cause;
};

// Appends events to DIR/events.jsonl, one line each. Does nothing without a folder. Lines that a full disk refuses are
// written with the next event, and a note says so.
class Events {
 public:
  // Creates the folder. Throws Error{usage} if the file cannot be written.
  explicit Events(const std::optional<std::filesystem::path>& folder);
  void write(const Event& event);

 private:
  std::filesystem::path folder_;
  std::optional<LogFile> file_;
  LogFailure failure_;
};

}  // namespace strata::launcher

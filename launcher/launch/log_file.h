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

// A file under --logs to which lines are appended. A refused write (for example because the disk is full) loses its
// line but never ends the run. Once there is space again, a line in the file says how many lines are missing. A file
// that was removed is created again, together with its folder.
class LogFile {
 public:
  // The treatment of refused lines. `count`: they are lost, and the next line that fits follows a line with their
  // number. `keep`: they wait in memory for the next write, which suits files with few lines that a program reads.
  enum class Refused { count, keep };
  // `later` is for restarts, which must not fail because of logs: the file is opened by the first write that finds the
  // folder or can create it.
  enum class Open { now, later };

  // Throws Error{usage} if the file must be opened now and cannot be.
  explicit LogFile(std::filesystem::path path, Refused refused = Refused::count, Open open = Open::now);
  // `line` ends with a line break. Returns the errno of a refused write; 0 if everything was written.
  int write(std::string_view line);

 private:
  // Both return errno; 0 if the file is open.
  int open();
  int open_if_removed();

  std::filesystem::path path_;
  Descriptor file_;
  Refused refused_;
  std::size_t lost_ = 0;  // refused lines
  bool cut_ = false;      // the last line in the file lacks its line break
  std::string rest_;      // with `keep`: the text that was refused
};

// Keeps the first refused write to any file of a folder, and reports it once.
class LogFailure {
 public:
  // Any thread may call it.
  void set(int error);
  // "--logs: ..." if a write was refused, on the first call only; otherwise empty.
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

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

// A file under --logs, appended to line by line. Logs are worth less than the run: a write that is refused (a full
// disk) loses its line and ends nothing. Once there is room again, the file says how many lines it lacks. A file that
// was removed is made anew, with its folder.
class LogFile {
 public:
  // What to do with what does not fit. `count`: the next line that fits follows a line that says how many are missing.
  // `keep`: it waits, in memory, for the next write: for few lines that a program reads.
  enum class Refused { count, keep };
  // At a restart nothing is refused: the file is opened by the first write that finds its folder, or can make it.
  enum class Open { now, later };

  // Throws Error{usage} if the file cannot be opened now.
  explicit LogFile(std::filesystem::path path, Refused refused = Refused::count, Open open = Open::now);
  // `line` ends with a line break. Returns the errno of what was refused; 0: all is written.
  int write(std::string_view line);

 private:
  // Return its errno; 0: it is open.
  int open();
  int open_if_gone();
  // As much of it as is taken, in bytes, and the errno that ended it.
  std::pair<std::size_t, int> append(std::string_view text) const;

  std::filesystem::path path_;
  Descriptor file_;
  Refused refused_;
  std::size_t lost_ = 0;  // lines
  bool cut_ = false;      // the last line in the file has no line break
  std::string rest_;      // of `keep`: what was refused
};

// Of a folder's files: the first write that was refused, told once.
class LogFailure {
 public:
  // Any thread.
  void set(int error);
  // "--logs: ..." if a write was refused since the start and this has not been asked before; empty otherwise.
  std::string take(const std::filesystem::path& folder);

 private:
  std::atomic<int> error_ = 0;
  std::atomic<bool> told_ = false;
};

inline constexpr std::string_view kEventsFile = "events.jsonl";

// What happened to a launch, of which it tells whoever reads events.jsonl.
struct Event {
  std::string_view kind;  // start, end, restart, node_lost, node_held, refused
  std::vector<std::string> nodes;
  std::optional<int> ranks, exit;
  std::string cause;
};

// DIR/events.jsonl, a line per event, behind what is there. Without a folder it does nothing. What a full disk refuses
// is written with the next event, and a note says so.
class Events {
 public:
  // Makes the folder. Throws Error{usage} if the file cannot be written.
  explicit Events(const std::optional<std::filesystem::path>& folder);
  void write(const Event& event);

 private:
  std::filesystem::path folder_;
  std::optional<LogFile> file_;
  LogFailure failure_;
};

}  // namespace strata::launcher

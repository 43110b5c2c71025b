#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/launch/log_file.h"

namespace strata::launcher {

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

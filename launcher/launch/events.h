#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

// What happened to a launch, of which it tells whoever reads events.jsonl.
struct Event {
  std::string_view kind;  // start, end, restart, node_lost, node_held, refused
  std::vector<std::string> nodes;
  std::optional<int> ranks, exit;
  std::string cause;
};

// DIR/events.jsonl, a line an event, behind what is there. Without a folder it does nothing.
class Events {
 public:
  // Makes the folder. Throws Error{usage} if the file cannot be written.
  explicit Events(const std::optional<std::filesystem::path>& folder);
  void write(const Event& event);

 private:
  std::optional<std::ofstream> file_;
};

}  // namespace strata::launcher

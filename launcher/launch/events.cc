#include "launcher/launch/events.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "launcher/screen/printable.h"
#include "runtime/recipe/value.h"

namespace strata::launcher {

Events::Events(const std::optional<std::filesystem::path>& folder) {
  if (!folder) return;
  folder_ = *folder;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  file_.emplace(folder_ / kEventsFile, LogFile::Refused::keep);
}

void Events::write(const Event& event) {
  if (!file_) return;
  std::string nodes;
  for (const std::string& node : event.nodes) nodes += (nodes.empty() ? "" : ",") + runtime::json_string(node);
  std::string line =
      fmt::format(R"({{"time":{:.3f},"event":"{}","nodes":[{}])", seconds_since_epoch(), event.kind, nodes);
  if (event.ranks) line += fmt::format(",\"ranks\":{}", *event.ranks);
  if (event.exit) line += fmt::format(",\"exit\":{}", *event.exit);
  if (!event.cause.empty()) line += ",\"cause\":" + runtime::json_string(event.cause);
  failure_.set(file_->write(line + "}\n"));
  if (const std::string told = failure_.take(folder_); !told.empty()) note(told);
}

}  // namespace strata::launcher

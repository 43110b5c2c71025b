#include "launcher/launch/events.h"

#include "base/clock.h"
#include "base/json_writer.h"
#include "launcher/screen/printable.h"

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
  JsonObject line;
  line.add("time", Decimals{seconds_since_epoch(), 3})
      .add("event", event.kind)
      .add("nodes", JsonArray().add_all(event.nodes));
  if (event.ranks) line.add("ranks", *event.ranks);
  if (event.exit) line.add("exit", *event.exit);
  if (!event.cause.empty()) line.add("cause", event.cause);
  failure_.set(file_->write(line.text() + "\n"));
  if (const std::string told = failure_.take(folder_); !told.empty()) note(told);
}

}  // namespace strata::launcher

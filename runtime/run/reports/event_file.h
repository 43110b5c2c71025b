#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/run/reports/report_file.h"

namespace strata::runtime {

// A number of a step under its tag: "train/loss".
struct Scalar {
  std::string_view tag;
  double value;
};

// Event files of TensorBoard in a folder, which is made: records with masked CRC-32C around hand-encoded `Event`
// messages (docs/formats.md, "TensorBoard"). Files of other programs stay as they are. Throws Error{failed} with path
// and reason.
class EventFile {
 public:
  // With the first write goes what the folder's event files of earlier runs hold, but for what is `kept`: a run that
  // goes on is one run. Throws Error{usage} if another run writes there.
  EventFile(std::filesystem::path folder, const std::optional<KeptLines>& kept);
  void write(double time, std::int64_t step, std::span<const Scalar> scalars);
  void close() { file_.close(); }

 private:
  std::filesystem::path folder_;
  std::optional<KeptLines> kept_;
  std::vector<std::filesystem::path> earlier_;  // files of runs before this one
  ReportFile file_;
  bool begun_ = false;
};

// A record: length, its checksum, the bytes, their checksum.
std::string record_of(std::string_view bytes);
// Bytes at the start of an event file that are whole records, none of them with scalars that are not kept.
std::size_t events_up_to(std::string_view file, const KeptLines& kept);

}  // namespace strata::runtime

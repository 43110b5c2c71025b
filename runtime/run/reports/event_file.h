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

// A number of a step with its tag: "train/loss".
struct Scalar {
  std::string_view tag;
  double value;
};

// TensorBoard event files in a folder, which is created: records with masked CRC-32C around hand-encoded `Event`
// messages (docs/formats.md, "TensorBoard"). Files of other programs are left alone. Throws Error{failed} with path and
// reason.
class EventFile {
 public:
  // The first write removes the content of earlier runs' event files in the folder except what is `kept`: a resumed run
  // continues them. Throws Error{usage} if another run writes there.
  EventFile(std::filesystem::path folder, const std::optional<KeptLines>& kept);
  void write(double time, std::int64_t step, std::span<const Scalar> scalars);
  void close() { file_.close(); }

 private:
  std::filesystem::path folder_;
  std::optional<KeptLines> kept_;
  std::vector<std::filesystem::path> earlier_;  // files of earlier runs
  ReportFile file_;
  bool begun_ = false;
};

// The CRC-32C (Castagnoli's polynomial, RFC 3720) of the bytes.
std::uint32_t crc32c(std::string_view bytes);
// Builds a record: length, its checksum, the bytes, their checksum.
std::string record_of(std::string_view bytes);
// The length of the beginning of an event file that consists of whole records and has only scalars that are kept.
std::size_t events_up_to(std::string_view file, const KeptLines& kept);

}  // namespace strata::runtime

#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/descriptor.h"

namespace strata::runtime {

// The part of a report that a resumed run keeps: the lines of steps up to `step`, and the evaluation after that step
// unless it is made again.
struct KeptLines {
  std::int64_t step = 0;
  bool evaluation = true;
};

// A file for a report, locked against other runs while it is open. Every write is checked: a full disk throws
// Error{failed} with the path. A pipe, a terminal or a stream that the process was started with (/dev/stdout) is
// written as it is; a link to anything else is refused.
class ReportFile {
 public:
  // The first write removes earlier content except the lines in `kept`. If nothing is kept, the file starts with
  // `heading`. A new file that was never written is removed again. `name` is the key that names the file. Throws
  // Error{usage} if another run writes it.
  explicit ReportFile(const std::filesystem::path& path, const char* name, std::optional<KeptLines> kept = {},
                      std::string heading = {});
  ~ReportFile();
  ReportFile(ReportFile&& other) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  void write(const std::string& text);
  // Flushes to the disk and reports errors that the system had delayed.
  void close();

 private:
  void open();
  void lock(const char* name);
  void cut();

  std::filesystem::path path_;
  std::optional<KeptLines> kept_;
  std::string heading_;
  Descriptor file_;
  bool is_new_ = false, locked_ = false, written_ = false;
};

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
  // The first write removes the content of earlier runs' event files in the folder except the events in `kept`, because
  // a resumed run continues them. Throws Error{usage} if another run writes there.
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

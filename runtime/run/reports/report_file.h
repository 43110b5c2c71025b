#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

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
  // The first write removes earlier content except what is `kept`. A file of which nothing is kept starts with
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
  void write_all(const std::string& text);

  std::filesystem::path path_;
  std::optional<KeptLines> kept_;
  std::string heading_;
  Descriptor file_;
  bool is_new_ = false, locked_ = false, written_ = false;
};

}  // namespace strata::runtime

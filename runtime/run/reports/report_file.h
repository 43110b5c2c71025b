#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/files/descriptor.h"

namespace strata::runtime {

// What a run that goes on keeps of a report: the lines of its steps up to `step`; the evaluation after that one only if
// it is not made again.
struct KeptLines {
  std::int64_t step = 0;
  bool evaluation = true;
};

// A file that a report goes to, locked against other runs for as long as it is open. Every write is checked: a full
// disk is an Error{failed} naming the path. A pipe, a terminal or what the process was started with (/dev/stdout) is
// written as it is; a link to anything else is refused.
class ReportFile {
 public:
  // What the file held before goes with the first write, but for what is `kept`. A file that nothing is kept of begins
  // with `heading`. A new file that nothing was written to is removed again. Throws Error{usage} if another run writes
  // it: `name` is the key that names it.
  explicit ReportFile(const std::filesystem::path& path, const char* name, std::optional<KeptLines> kept = {},
                      std::string heading = {});
  ~ReportFile();
  ReportFile(ReportFile&& other) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  void write(const std::string& text);
  // Flushes to the disk and reports what the system kept back until then.
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

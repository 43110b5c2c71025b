#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/files/descriptor.h"

namespace strata::runtime {

// A file that a report goes to. Every write is checked: a full disk is an Error{failed} naming the path.
class ReportFile {
 public:
  // What the file held before goes with the first write; of a report that goes on, lines of steps up to `kept_step`
  // stay. A file that nothing is kept of begins with `heading`. A new file that nothing was written to is removed
  // again.
  explicit ReportFile(const std::filesystem::path& path, std::int64_t kept_step = 0, std::string heading = {});
  ~ReportFile();
  ReportFile(ReportFile&& other) noexcept;
  ReportFile& operator=(ReportFile&&) = delete;
  void write(const std::string& text);
  // Flushes to the disk and reports what the system kept back until then.
  void close();

 private:
  void cut();
  void write_all(const std::string& text);

  std::filesystem::path path_;
  std::int64_t kept_step_;
  std::string heading_;
  Descriptor file_;
  bool is_new_ = false, written_ = false;
};

}  // namespace strata::runtime

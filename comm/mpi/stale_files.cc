#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/files/descriptor.h"
#include "base/host/host.h"
#include "comm/mpi/start.h"

namespace strata::comm {
namespace {

namespace fs = std::filesystem;

fs::path session_folder() {
  for (const char* name : {"TMPDIR", "TEMP", "TMP"})
    if (const char* folder = std::getenv(name); folder && *folder) return folder;
  return "/tmp";
}

// The forms of this machine's name that a file name may contain: the full name, and the part before the domain.
std::vector<std::string> own_names() {
  const std::string whole = host_name();
  const std::string first = whole.substr(0, whole.find('.'));
  return first == whole ? std::vector{whole} : std::vector{whole, first};
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path());
  return out;
}

bool is_own(const fs::path& path, mode_t kind) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & S_IFMT) == kind;
}

// A regular file that no other process has open or mapped, which is the only kind that gets a write lease from the
// kernel. The kernel also counts processes in other containers, whose PIDs and mappings are not visible in /proc.
class UnusedFile {
 public:
  explicit UnusedFile(const fs::path& path) {
    if (!is_own(path, S_IFREG)) return;
    file_.reset(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    // If another process opens the file during the lease, the kernel sends a signal. The default, SIGIO, would end this
    // process.
    leased_ = file_.get() >= 0 && ::fcntl(file_.get(), F_SETSIG, SIGURG) == 0 &&
              ::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  explicit operator bool() const { return leased_; }

 private:
  Descriptor file_;  // closing it ends the lease
  bool leased_ = false;
};

// The process ID in "N" or "N..."; 0 if there is none.
pid_t number_in(std::string_view text) {
  pid_t out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return std::max(out, 0);
}

bool is_running(pid_t process) {
  return ::kill(process, 0) == 0 || errno != ESRCH;
}

// Removes the session folder of a start that is over. A running start has the folder's files open, and `process` is the
// process ID in its name; 0 if there is none.
bool remove_session(const fs::path& folder, pid_t process) {
  if (!is_own(folder, S_IFDIR) || (process > 0 && is_running(process))) return false;
  std::error_code error;
  bool has_files = false;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    has_files = true;
    if (!UnusedFile(at->path())) return false;
  }
  // A folder without files may belong to a start that is just beginning.
  if (error || !has_files) return false;
  fs::remove_all(folder, error);
  return !error;
}

}  // namespace

std::size_t remove_stale_files(SharedFolders folders) {
  if (folders.sessions.empty()) folders.sessions = session_folder();
  std::size_t removed = 0;
  const std::string user = std::to_string(::geteuid());
  for (const std::string& host : own_names()) {
    const std::array<std::string, 2> segments = {"vader_segment." + host + ".", "sm_segment." + host + "."};
    for (const fs::path& path : entries(folders.segments)) {
      const std::string name = path.filename().string();
      if (std::ranges::none_of(segments, [&](const std::string& begin) { return name.starts_with(begin); })) continue;
      if (const UnusedFile unused(path); unused) removed += ::unlink(path.c_str()) == 0;
    }
    // Open MPI 4 has one folder per user, with a folder for each mpirun (pid.N) and each daemon (jf.N).
    const fs::path all = folders.sessions / ("ompi." + host + "." + user);
    if (is_own(all, S_IFDIR)) {
      for (const fs::path& path : entries(all)) {
        const std::string name = path.filename().string();
        const bool by_process = name.starts_with("pid.");
        if (by_process || name.starts_with("jf."))
          removed += remove_session(path, by_process ? number_in(std::string_view(name).substr(4)) : 0);
      }
      (void)::rmdir(all.c_str());  // only if it is empty, as Open MPI does when it ends
    }
    // Open MPI 5 names its folders TOOL.HOST.PROCESS.USER.
    for (const std::string_view tool : {"prterun", "prte", "prted"}) {
      const std::string begin = std::string(tool) + "." + host + ".";
      for (const fs::path& path : entries(folders.sessions))
        if (const std::string name = path.filename().string(); name.starts_with(begin) && name.ends_with("." + user))
          if (const pid_t process = number_in(std::string_view(name).substr(begin.size())); process > 0)
            removed += remove_session(path, process);
    }
  }
  return removed;
}

}  // namespace strata::comm

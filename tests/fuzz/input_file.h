#pragma once
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace strata::fuzz {

// A folder that lives as long as the process, for targets whose code reads files.
inline const std::filesystem::path& folder() {
  static const struct Folder {
    std::filesystem::path path;
    Folder() {
      const char* memory = "/dev/shm";
      std::string name =
          (::access(memory, W_OK) == 0 ? std::filesystem::path(memory) : std::filesystem::temp_directory_path()) /
          "strata-fuzz-XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) std::abort();
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } made;
  return made.path;
}

// Rewrites one file of the folder.
inline std::filesystem::path write_input(const char* name, const std::uint8_t* data, std::size_t size) {
  const auto path = folder() / name;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size) || ::close(fd) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
  return path;
}

}  // namespace strata::fuzz

#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/files/descriptor.h"

namespace strata {

// Whether pipes may be opened. handed_over: only a pipe that the process was started with (is_handed_over()), such as
// standard input or a shell's <(...). The process that made such a pipe holds its other end open.
enum class Pipes : std::uint8_t { refused, handed_over };

// A regular file, opened for reading without blocking. Anything else (a pipe without a writer, a device, a socket, a
// folder) is refused, because a read might never end.
struct InputFile {
  explicit InputFile(const std::filesystem::path& path, Pipes pipes = Pipes::refused);

  Descriptor file;          // empty if the file was refused
  int error = 0;            // errno; 0 on success, and if this is not a regular file
  std::uint64_t bytes = 0;  // the size of a regular file
};

// Like InputFile, but throws Error{usage} if the file was refused. The message begins with `named`: "recipe a.toml".
Descriptor open_input(const std::filesystem::path& path, const std::string& named, Pipes pipes = Pipes::refused);
// Returns the file's text. Also throws Error{usage} above `most` bytes, because it is then the wrong file.
std::string read_input(const std::filesystem::path& path, const std::string& named, std::size_t most,
                       Pipes pipes = Pipes::refused);
// Reads the open file to its end.
std::string read_input(const Descriptor& file, const std::string& named, std::size_t most);

// This function and the next one detect what an incomplete download leaves in place of a file, and throw an
// Error{usage} that says what to do. This one detects a link whose target is missing, for example because a download
// cache was cleared. A listing shows such a link as if it were the file.
void refuse_broken_link(const std::filesystem::path& path);
// Detects a Git LFS pointer (git-lfs/docs/spec.md), which a clone without LFS contains instead of the file. `text`: the
// file, or its first 1,024 bytes.
void refuse_lfs_pointer(std::string_view text, const std::string& named);

}  // namespace strata

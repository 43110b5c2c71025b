#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/files/descriptor.h"

namespace strata {

// Whether a pipe may be opened. handed_over: if the process was started with it (is_handed_over()), such as standard
// input or a shell's <(...), whose other end somebody holds open.
enum class Pipes : std::uint8_t { refused, handed_over };

// A regular file, opened for reading without waiting. Anything else (a pipe that nobody writes to, a device, a socket,
// a folder) is refused, since reading it might never end.
struct InputFile {
  explicit InputFile(const std::filesystem::path& path, Pipes pipes = Pipes::refused);

  Descriptor file;          // none: it was refused
  int error = 0;            // the system's reason; 0 without a descriptor: it is no regular file
  std::uint64_t bytes = 0;  // of a regular file
};

// The same, or Error{usage} that begins with `named`, which says what the file is: "recipe a.toml".
Descriptor open_input(const std::filesystem::path& path, const std::string& named, Pipes pipes = Pipes::refused);
// Its text. Throws Error{usage} also if it has more than `most` bytes, which then is another file.
std::string read_input(const std::filesystem::path& path, const std::string& named, std::size_t most,
                       Pipes pipes = Pipes::refused);
// The rest of what is open.
std::string read_input(const Descriptor& file, const std::string& named, std::size_t most);

// Checks for what a download that did not finish leaves in a file's place. Each throws Error{usage} that says what to
// do. A link whose target is gone, as in a cache of downloads that was cleared; a listing shows it as a file.
void refuse_broken_link(const std::filesystem::path& path);
// A Git LFS pointer (git-lfs/docs/spec.md), which a clone without LFS has. `text`: the file, or its first 1,024 bytes.
void refuse_lfs_pointer(std::string_view text, const std::string& named);

}  // namespace strata

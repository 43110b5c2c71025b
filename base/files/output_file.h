#pragma once
#include <fcntl.h>
#include <sys/types.h>

#include <filesystem>

#include "base/files/descriptor.h"

namespace strata {

// Files that are made in folders which others may write to, too. None of these follows a link that lies at `path`
// itself, so that nobody chooses which file is written by planting one. All return no descriptor, with errno, if the
// system refuses; `access`: O_WRONLY or O_RDWR.

// A file that is not there yet. EEXIST: something is.
Descriptor create_new_file(const std::filesystem::path& path, int access = O_WRONLY, mode_t mode = 0666);
// A file of one's own that may be there: a new one, or the regular file or pipe at `path`, opened without waiting. With
// O_APPEND in `access` it is written at its end. ELOOP: a link is there, and it leads to no terminal, /dev/null or
// such.
Descriptor open_own_file(const std::filesystem::path& path, int access = O_WRONLY, mode_t mode = 0666);
// A folder that is not there yet. False, with errno: it cannot be made.
bool create_new_folder(const std::filesystem::path& path);
// A name next to `path` that nobody can guess, for what is renamed to `path` when it is whole.
std::filesystem::path name_next_to(const std::filesystem::path& path);

// Whether a path names what the process was started with, whatever that is: /dev/stdin, stdout and stderr, /dev/fd/N
// and /proc/self/fd/N, the terminal, /dev/null. Links in it are the system's own.
bool is_handed_over(const std::filesystem::path& path);

}  // namespace strata

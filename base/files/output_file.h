#pragma once
#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/files/descriptor.h"

namespace strata {

// The functions below create files in folders that others may write to. None of them follows a link at `path` itself,
// so a planted link cannot redirect a write. If the system refuses, they return an empty descriptor and set errno,
// which refused_write() turns into an error. `access`: O_WRONLY or O_RDWR.

// Creates a file that does not exist yet. EEXIST means that something is already there.
Descriptor create_new_file(const std::filesystem::path& path, int access = O_WRONLY, mode_t mode = 0666);
// Opens one of the user's own files without blocking: a new file, or the regular file or pipe at `path`. O_APPEND in
// `access` appends. ELOOP means that `path` is a link that does not lead to a terminal, /dev/null or a similar device.
Descriptor open_own_file(const std::filesystem::path& path, int access = O_WRONLY, mode_t mode = 0666);
// Creates a folder that does not exist yet. Returns false and sets errno if it cannot be created.
bool create_new_folder(const std::filesystem::path& path);
// An unguessable name next to `path`, for a file that is renamed to `path` when it is complete.
std::filesystem::path name_next_to(const std::filesystem::path& path);

// Whether a path names something that the process was started with: /dev/stdin, stdout and stderr, /dev/fd/N and
// /proc/self/fd/N, the terminal, /dev/null. Links in these paths belong to the system.
bool is_handed_over(const std::filesystem::path& path);

// Locks an open file (flock) against other processes, without blocking. The lock ends when the descriptor is closed or
// the process ends in any way, so a crashed run leaves no lock. Returns 0 or errno. EWOULDBLOCK means that another
// process holds the lock.
int lock_file(const Descriptor& file);
// Whether `path` still names the open file, directly and not through a link.
bool lies_at(const Descriptor& file, const std::filesystem::path& path);

// Writes all bytes, unless the system refuses some. Returns how many were written; if not all, errno says why.
std::size_t write_all(const Descriptor& file, std::span<const std::byte> bytes);
// Throws the error for a write that the system refused with this errno. `what` is the sentence up to the reason: "FILE
// cannot be written". Lack of space (a full disk, a quota, a file size limit) is Error{does_not_fit}, and the message
// says what to do, because a retry would fail too. A link in the file's place (ELOOP) is Error{usage}. Anything else is
// Error{failed}; for missing permissions the message says what to do.
[[noreturn]] void refused_write(const std::string& what, int error);
// Throws Error{usage} for a file that cannot be created because of its folder (ENOENT, ENOTDIR): the folder is missing,
// or belongs to the system, such as /proc.
[[noreturn]] void no_folder_for(const std::filesystem::path& path);

}  // namespace strata

#pragma once
#include <filesystem>
#include <string>

namespace strata {

// Throws the error for a write that the system refused with this errno. `what` is the sentence up to the reason: "FILE
// cannot be written". Lack of space (a full disk, a quota, a file size limit) is Error{does_not_fit} and says what to
// do, because trying again changes nothing. A link in the file's place (ELOOP) is Error{usage}. Anything else is
// Error{failed}; one about permissions says what to do.
[[noreturn]] void refused_write(const std::string& what, int error);
// Throws Error{usage} for a file that could not be created because of its folder (ENOENT, ENOTDIR): the folder is
// missing, or is the system's own, such as /proc.
[[noreturn]] void no_folder_for(const std::filesystem::path& path);

}  // namespace strata

#include "base/files/refused_write.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace strata {
namespace {

// Advice about lack of space; nullptr for any other error.
const char* advice(int error) {
  switch (error) {
    case ENOSPC:
      return "free some space there, or name a place that has more";
    case EDQUOT:
      return "free some of your quota there, or name another place";
    case EFBIG:
      return "raise the file size limit (ulimit -f), or name a file system that allows longer files";
    default:
      return nullptr;
  }
}

}  // namespace

void refused_write(const std::string& what, int error) {
  if (const char* to_do = advice(error))
    fail(Exit::does_not_fit, "{}: {} (errno {}): {}", what, std::strerror(error), error, to_do);
  if (error == ELOOP)
    fail(Exit::usage, "{}: it is a symbolic link, and files are not written through links: name the file itself", what);
  const char* may_not = error == EROFS                      ? ": name a place in another file system"
                        : error == EACCES || error == EPERM ? ": give this user the right to write there, or name "
                                                              "another place"
                                                            : "";
  fail(Exit::failed, "{}: {} (errno {}){}", what, std::strerror(error), error, may_not);
}

void no_folder_for(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored))
    fail(Exit::usage, "{}: no files can be created in {}: give a name in another folder", path.string(),
         folder.string());
  fail(Exit::usage, "{}: there is no folder {}: make it first, or give another name", path.string(), folder.string());
}

}  // namespace strata

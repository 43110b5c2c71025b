#include "base/files/refused_write.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace strata {
namespace {

// What the user can do; nullptr if the error is not about lack of space.
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
  fail(Exit::failed, "{}: {} (errno {})", what, std::strerror(error), error);
}

}  // namespace strata

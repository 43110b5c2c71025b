#include "base/files/refused_write.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace strata {
namespace {

// What to do; nullptr: it is no lack of room.
const char* advice(int error) {
  switch (error) {
    case ENOSPC:
      return "free some space there, or name a place that has more";
    case EDQUOT:
      return "free some of your quota there, or name another place";
    case EFBIG:
      return "raise the limit of a file's size (ulimit -f), or name a file system that takes longer files";
    default:
      return nullptr;
  }
}

}  // namespace

void refused_write(const std::string& what, int error) {
  if (const char* to_do = advice(error))
    fail(Exit::does_not_fit, "{}: {} (errno {}): {}", what, std::strerror(error), error, to_do);
  if (error == ELOOP)
    fail(Exit::usage, "{}: it is a symbolic link, and no file is written through one: name the file itself", what);
  fail(Exit::failed, "{}: {} (errno {})", what, std::strerror(error), error);
}

}  // namespace strata

#include "base/files/refused_write.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "base/files/atomic_file.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(RefusedWrite, NoRoomDoesNotFitAndSaysWhatToDo) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    EXPECT_FAILURE(
        refused_write("f cannot be written", error), Exit::does_not_fit,
        testing::AllOf(StartsWith("f cannot be written: "), testing::ContainsRegex(": (free|raise) .* name ")));
  }
}

TEST(RefusedWrite, AnythingElseFailed) {
  EXPECT_FAILURE(refused_write("f cannot be written", EIO), Exit::failed, EndsWith("Input/output error (errno 5)"));
}

TEST(RefusedWrite, PermissionsSayWhatToDo) {
  EXPECT_FAILURE(refused_write("f cannot be written", EACCES), Exit::failed,
                 EndsWith("(errno 13): give this user the right to write there, or name another place"));
  EXPECT_FAILURE(refused_write("f cannot be written", EROFS), Exit::failed, EndsWith("in another file system"));
}

TEST(RefusedWrite, AFolderThatTakesNoFiles) {
  const tests::ScratchFolder folder;
  EXPECT_FAILURE(no_folder_for(folder.path() / "none/f"), Exit::usage, HasSubstr("there is no folder"));
  EXPECT_FAILURE(AtomicFile("/proc/x.bin"), Exit::usage,
                 HasSubstr("/proc/x.bin: no files can be created in /proc: give a name in another folder"));
}

}  // namespace
}  // namespace strata

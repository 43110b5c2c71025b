#include "base/files/refused_write.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "tests/failure.h"

namespace strata {
namespace {

using testing::EndsWith;
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

}  // namespace
}  // namespace strata

#include <gmock/gmock.h>

#include "offload/drive.h"
#include "tests/few_threads.h"
#include "tests/scratch_folder.h"

namespace strata::offload {
namespace {

// The pool's threads belong to the drive's thread. Those that were started before the refused one are ended.
TEST(ThreadPool, TheDriveReportsRefusedThreads) {
  const tests::ScratchFolder folder;
  const SwapFile file(folder.path(), kBlock, 0);
  EXPECT_REFUSED_THREAD(Drive(file, IoMode{Engine::threads, false, false}, IoOptions{}),
                        "a thread that reads and writes a drive");
}

}  // namespace
}  // namespace strata::offload

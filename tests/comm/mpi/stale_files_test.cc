#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "base/files/descriptor.h"
#include "base/host/host.h"
#include "comm/mpi/start.h"
#include "tests/scratch_folder.h"

namespace strata::comm {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class StaleFiles : public testing::Test {
 protected:
  fs::path segment(const std::string& name) const { return folder_.write("shm/" + name, "bytes"); }
  std::string own(const std::string& kind, const std::string& rest) const {
    return kind + "." + host_name() + "." + rest;
  }
  std::string sessions() const { return "tmp/ompi." + host_name() + "." + std::to_string(geteuid()); }
  std::set<std::string> there(const std::string& folder) const {
    std::set<std::string> out;
    if (fs::exists(folder_.path() / folder))
      for (const auto& entry : fs::directory_iterator(folder_.path() / folder))
        out.insert(entry.path().filename().string());
    return out;
  }
  std::size_t clear() const { return remove_stale_files({folder_.path() / "shm", folder_.path() / "tmp"}); }
  // The process ID of a process that has ended.
  static std::string ended_process() {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    return std::to_string(child);
  }

  tests::ScratchFolder folder_;
};

TEST_F(StaleFiles, UnusedSegmentsAreRemoved) {
  segment(own("vader_segment", "0.2de10001.0"));
  segment(own("sm_segment", "1000.5.1"));
  EXPECT_EQ(clear(), 2U);
  EXPECT_THAT(there("shm"), IsEmpty());
}

TEST_F(StaleFiles, SegmentsInUseStay) {
  const std::string open_one = own("vader_segment", "0.1.0"), mapped_one = own("vader_segment", "0.1.1");
  const Descriptor open_file(open(segment(open_one).c_str(), O_RDWR | O_CLOEXEC));
  void* mapped = nullptr;
  {
    const Descriptor file(open(segment(mapped_one).c_str(), O_RDWR | O_CLOEXEC));
    mapped = mmap(nullptr, 5, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  EXPECT_EQ(clear(), 0U);
  EXPECT_THAT(there("shm"), ElementsAre(open_one, mapped_one));
  munmap(mapped, 5);
  EXPECT_EQ(clear(), 1U);
  EXPECT_THAT(there("shm"), ElementsAre(open_one));
}

TEST_F(StaleFiles, OtherFilesAndOtherUsersFilesStay) {
  const auto mine = folder_.write("mine", "precious");
  const std::set<std::string> names = {"vader_segment.elsewhere.0.1.0", "vader_segment", own("other_segment", "0.1.0"),
                                       own("vader_segment", "0.1.link"), own("sm_segment", "0.1.folder")};
  for (const std::string& name : names)
    if (!name.ends_with(".link") && !name.ends_with(".folder")) segment(name);
  fs::create_symlink(mine, folder_.path() / "shm" / own("vader_segment", "0.1.link"));
  fs::create_directory(folder_.path() / "shm" / own("sm_segment", "0.1.folder"));
  if (geteuid() == 0) {
    const fs::path of_another = segment(own("vader_segment", "7.1.0"));
    ASSERT_EQ(chown(of_another.c_str(), 7, 7), 0);
    EXPECT_EQ(clear(), 0U);
    EXPECT_TRUE(fs::exists(of_another));
    fs::remove(of_another);
  }
  EXPECT_EQ(clear(), 0U);
  EXPECT_EQ(there("shm"), names);
  EXPECT_EQ(folder_.read("mine"), "precious");
}

TEST_F(StaleFiles, SessionFoldersOfEndedRunsAreRemoved) {
  const std::string ended = ended_process();
  folder_.write(sessions() + "/pid." + ended + "/contact.txt", "");
  folder_.write(sessions() + "/pid." + ended + "/pmix_dstor/lock", "");
  folder_.write(sessions() + "/jf.12/1/lock", "");
  folder_.write("tmp/" + own("prterun", ended + "." + std::to_string(geteuid()) + "/1/lock"), "");
  EXPECT_EQ(clear(), 3U);
  EXPECT_THAT(there("tmp"), IsEmpty());
}

TEST_F(StaleFiles, SessionFoldersOfOtherUsersAndOfActiveRunsStay) {
  const std::string ended = ended_process(), running = std::to_string(getpid()), user = std::to_string(geteuid());
  folder_.write(sessions() + "/pid." + running + "/contact.txt", "");
  const auto held = folder_.write(sessions() + "/pid." + ended + "/lock", "");
  const Descriptor open_file(open(held.c_str(), O_RDWR | O_CLOEXEC));
  fs::create_directories(folder_.path() / sessions() / "jf.13/0");  // it begins
  folder_.write(sessions() + "/notes/text", "mine");
  folder_.write("tmp/" + own("prterun", running + "." + user + "/lock"), "");
  folder_.write("tmp/" + own("prterun", ended + ".123456/lock"), "");
  folder_.write("tmp/ompi.elsewhere." + user + "/pid." + ended + "/lock", "");
  EXPECT_EQ(clear(), 0U);
  EXPECT_THAT(there(sessions()), testing::SizeIs(4));
  EXPECT_THAT(there("tmp"), testing::SizeIs(4));
}

}  // namespace
}  // namespace strata::comm

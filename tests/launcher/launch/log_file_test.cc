#include "launcher/launch/log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// During its lifetime, no file can grow beyond `bytes`. This simulates a full disk, with another errno.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(LogFile, ReportsMissingLinesOnceThereIsSpace) {
  const tests::ScratchFolder folder;
  LogFile file(folder.path() / "log");
  EXPECT_EQ(file.write("first\n"), 0);
  {
    const FullDisk full(10);
    EXPECT_EQ(file.write("second\n"), EFBIG);  // "seco" fits
    EXPECT_EQ(file.write("third\n"), EFBIG);
  }
  EXPECT_EQ(file.write("fourth\n"), 0);
  EXPECT_EQ(file.write("fifth\n"), 0);
  EXPECT_EQ(folder.read("log"),
            "first\nseco\nstrata: missing here, because the disk was full or failed: 2 lines\nfourth\nfifth\n");
}

// A restart creates a removed folder again. If that fails, only lines are lost.
TEST(LogFile, AFailedReopenOnlyLosesLines) {
  const tests::ScratchFolder folder;
  folder.write("logs", "a file in the place of the folder");
  LogFile file(folder.path() / "logs/log", LogFile::Refused::count, LogFile::Open::later);
  EXPECT_EQ(file.write("first\n"), ENOTDIR);
  EXPECT_EQ(file.write("second\n"), ENOTDIR);
  std::filesystem::remove(folder.path() / "logs");
  EXPECT_EQ(file.write("third\n"), 0);
  EXPECT_EQ(folder.read("logs/log"), "strata: missing here, because the disk was full or failed: 2 lines\nthird\n");
  EXPECT_FAILURE(LogFile(folder.path() / "logs/log/more"), Exit::usage, HasSubstr("more cannot be written"));
}

TEST(LogFile, IsRecreatedIfRemoved) {
  const tests::ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "logs");
  LogFile file(folder.path() / "logs/log"), events(folder.path() / "logs/events", LogFile::Refused::keep);
  EXPECT_EQ(file.write("first\n"), 0);
  std::filesystem::remove_all(folder.path() / "logs");
  folder.write("logs", "in its place");
  EXPECT_EQ(file.write("second\n"), ENOTDIR);
  EXPECT_EQ(events.write("one\n"), ENOTDIR);
  std::filesystem::remove(folder.path() / "logs");
  EXPECT_EQ(file.write("third\n"), 0);
  EXPECT_EQ(events.write("two\n"), 0);
  EXPECT_EQ(folder.read("logs/log"), "strata: missing here, because the disk was full or failed: a line\nthird\n");
  EXPECT_EQ(folder.read("logs/events"), "one\ntwo\n");
}

TEST(LogFile, ARefusedLineLeavesNoEmptyLine) {
  const tests::ScratchFolder folder;
  LogFile file(folder.path() / "log");
  EXPECT_EQ(file.write("first\n"), 0);
  {
    const FullDisk full(6);
    EXPECT_EQ(file.write("second\n"), EFBIG);
  }
  EXPECT_EQ(file.write("third\n"), 0);
  EXPECT_EQ(folder.read("log"), "first\nstrata: missing here, because the disk was full or failed: a line\nthird\n");
}

TEST(LogFile, MachineReadableLinesWaitAndStayComplete) {
  const tests::ScratchFolder folder;
  LogFile file(folder.path() / "log", LogFile::Refused::keep);
  EXPECT_EQ(file.write("{1}\n"), 0);
  {
    const FullDisk full(6);
    EXPECT_EQ(file.write("{2}\n"), EFBIG);
    EXPECT_EQ(file.write("{3}\n"), EFBIG);
  }
  EXPECT_EQ(file.write("{4}\n"), 0);
  EXPECT_EQ(folder.read("log"), "{1}\n{2}\n{3}\n{4}\n");
}

TEST(LogFile, AFileThatCannotBeOpenedIsNamedWithTheReason) {
  const tests::ScratchFolder folder;
  EXPECT_FAILURE(LogFile(folder.path() / "no" / "log"), Exit::usage, HasSubstr("no/log cannot be written: No such"));
}

TEST(LogFailure, IsReportedOnceWithItsFirstReason) {
  LogFailure failure;
  failure.set(0);
  EXPECT_EQ(failure.take("logs"), "");
  failure.set(ENOSPC);
  failure.set(EIO);
  EXPECT_THAT(failure.take("logs"), StartsWith("--logs: logs cannot be written (No space left on device)"));
  failure.set(EIO);
  EXPECT_EQ(failure.take("logs"), "");
}

using testing::MatchesRegex;

TEST(Events, AppendsALinePerEvent) {
  const tests::ScratchFolder folder;
  Events(folder.path() / "logs").write({"start", {"n1", "n2"}, 4});
  Events again(folder.path() / "logs");
  again.write({"end", {"n1"}, 4, 1, "it \"broke\""});
  EXPECT_THAT(folder.read("logs/events.jsonl"),
              MatchesRegex(R"(\{"time":[0-9]+\.[0-9]{3},"event":"start","nodes":\["n1","n2"\],"ranks":4\})"
                           "\n"
                           R"(\{"time":[0-9]+\.[0-9]{3},"event":"end","nodes":\["n1"\],"ranks":4,"exit":1,)"
                           R"("cause":"it \\"broke\\""\})"
                           "\n"));
  Events(std::nullopt).write({"start", {}});
}

TEST(Events, AFullDiskIsReportedOnceAndEndsNothing) {
  const tests::ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "events.jsonl");
  Events events(folder.path());
  testing::internal::CaptureStderr();
  events.write({"start", {"n1"}, 4});
  events.write({"end", {"n1"}, 4, 1});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("cannot be written (No space left on device)"));
  EXPECT_EQ(said.find("cannot be written"), said.rfind("cannot be written")) << said;
}

TEST(Events, NamesAFolderThatCannotBeMade) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("file", "x");
  EXPECT_FAILURE(Events(file / "logs"), Exit::usage, HasSubstr("--logs"));
}

}  // namespace
}  // namespace strata::launcher

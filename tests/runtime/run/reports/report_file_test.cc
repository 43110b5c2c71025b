#include "runtime/run/reports/report_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

class ReportFileTest : public testing::Test {
 protected:
  // The file's content after a run that writes `text` and keeps from `before` what `kept` says.
  std::string after(const std::string& before, std::optional<KeptLines> kept, const std::string& text,
                    const std::string& heading = {}) const {
    const auto path = folder_.write("report", before);
    ReportFile file(path, "report.jsonl", kept, heading);
    file.write(text);
    file.close();
    return folder_.read("report");
  }

  tests::ScratchFolder folder_;
};

TEST_F(ReportFileTest, TheFirstWriteReplacesWhatWasThere) {
  EXPECT_EQ(after("old\n", {}, "new\n"), "new\n");
  EXPECT_EQ(after("old\n", {}, "1,2\n", "a,b\n"), "a,b\n1,2\n");
}

TEST_F(ReportFileTest, AResumedRunKeepsTheLinesOfItsSteps) {
  const std::string lines =
      "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":2,\"eval_loss\":5}\n{\"step\":3,\"loss\":1}\n";
  const std::string two = "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n";
  EXPECT_EQ(after(lines, KeptLines{2, true}, "new\n"), two + "{\"step\":2,\"eval_loss\":5}\nnew\n");
  EXPECT_EQ(after(lines, KeptLines{2, false}, "new\n"), two + "new\n") << "the evaluation is repeated";
  EXPECT_EQ(after(lines + "{\"step\":4", KeptLines{9, true}, "new\n"), lines + "new\n") << "a line that was cut off";
}

TEST_F(ReportFileTest, ATableKeepsItsHeading) {
  const std::string heading = "step,loss,eval_loss,\n", before = heading + "1,3,,\n2,2,,\n2,,5,\n3,1,,\n";
  EXPECT_EQ(after(before, KeptLines{2, true}, "4,0,,\n", heading), heading + "1,3,,\n2,2,,\n2,,5,\n4,0,,\n");
  EXPECT_EQ(after(before, KeptLines{2, false}, "4,0,,\n", heading), heading + "1,3,,\n2,2,,\n4,0,,\n");
}

TEST_F(ReportFileTest, AnUnwrittenReportLeavesTheFileUnchanged) {
  const auto old = folder_.write("old", "kept\n"), fresh = folder_.path() / "fresh";
  {
    const ReportFile a(old, "report.jsonl"), b(fresh, "report.csv");
    EXPECT_TRUE(std::filesystem::exists(fresh)) << "so that a mistake shows before the run";
  }
  EXPECT_EQ(folder_.read("old"), "kept\n");
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

TEST_F(ReportFileTest, OnlyOneRunWritesAFile) {
  const auto path = folder_.path() / "report";
  ReportFile first(path, "report.jsonl");
  EXPECT_FAILURE(ReportFile(path, "report.jsonl"), Exit::usage, HasSubstr("report.jsonl: " + path.string()));
  const ReportFile moved(std::move(first));
  EXPECT_FAILURE(ReportFile(path, "report.jsonl"), Exit::usage, HasSubstr("is in use"));
}

TEST_F(ReportFileTest, NamesAMissingFolder) {
  EXPECT_FAILURE(ReportFile(folder_.path() / "none" / "report", "report.jsonl"), Exit::failed,
                 HasSubstr("there is no folder " + (folder_.path() / "none").string()));
  EXPECT_FAILURE(ReportFile("/proc/report.jsonl", "report.jsonl"), Exit::usage,
                 HasSubstr("no files can be created in /proc"));
}

}  // namespace
}  // namespace strata::runtime

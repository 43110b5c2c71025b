#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/run/reports/report_file.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using tests::ScratchFolder;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}
std::string all_in(const ScratchFolder& folder) {
  std::string out;
  for (const std::string& name : names_in(folder.path())) out += folder.read(name);
  return out;
}
void write_steps(const fs::path& folder, std::int64_t first, std::int64_t last) {
  EventFile file(folder, first > 1 ? std::optional(KeptLines{first - 1}) : std::nullopt);
  for (std::int64_t step = first; step <= last; ++step) {
    const Scalar scalar{"train/loss", static_cast<double>(step)};
    file.write(1.5, step, {&scalar, 1});
  }
  file.close();
}

TEST(EventFile, DropsAnEvaluationThatIsRepeated) {
  const ScratchFolder folder;
  {
    EventFile file(folder.path(), {});
    const Scalar loss{"train/loss", 1}, evaluation{"eval/loss", 1};
    file.write(1.5, 2, {&loss, 1});
    file.write(1.5, 2, {&evaluation, 1});
    file.close();
  }
  const std::string text = all_in(folder);
  EXPECT_EQ(events_up_to(text, {2}), text.size());
  EXPECT_EQ(events_up_to(text, {3, false}), text.size());
  const std::size_t cut = events_up_to(text, {2, false});
  EXPECT_LT(cut, text.size());
  EXPECT_EQ(text.substr(0, cut).find("eval/loss"), std::string::npos);
  EXPECT_NE(text.substr(0, cut).find("train/loss"), std::string::npos);
}

TEST(EventFile, AFolderBelongsToOneRun) {
  const ScratchFolder folder;
  {
    const EventFile first(folder.path(), {});
    EXPECT_FAILURE(EventFile(folder.path(), {}), Exit::usage, testing::HasSubstr("another run writes"));
  }
  EXPECT_NO_THROW(EventFile(folder.path(), {}));
}

// The bytes that the tensorboard package's writer produces for Event(wall_time=1.5, step=3, summary=[train/loss:
// 2.25]). tests/scripts/tensorboard.sh reads complete folders with that package.
TEST(EventFile, RecordsMatchThoseOfTensorBoard) {
  const ScratchFolder folder;
  EventFile file(folder.path(), KeptLines{2});
  const Scalar scalar{"train/loss", 2.25};
  file.write(1.5, 3, {&scalar, 1});
  file.close();
  const std::string event(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x03\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x10\x40", 32);
  const std::string text = all_in(folder);
  ASSERT_THAT(text, HasSubstr(record_of(event)));
  EXPECT_TRUE(text.ends_with(record_of(event)));
  EXPECT_THAT(text, HasSubstr("brain.Event:2"));
  // The length, and its checksum rotated right by 15 bits plus a constant.
  const std::string record = record_of("abc");
  ASSERT_EQ(record.size(), 19u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  std::uint32_t sum = 0;
  record.copy(reinterpret_cast<char*>(&sum), 4, 15);
  const std::uint32_t plain = crc32c("abc");
  EXPECT_EQ(sum, (plain >> 15 | plain << 17) + 0xa282ead8u);
}

TEST(EventFile, AResumedRunKeepsOnlyItsOwnSteps) {
  const ScratchFolder folder;
  write_steps(folder.path(), 1, 5);
  const std::string before = all_in(folder);
  const std::size_t of_three = events_up_to(before, {3});
  ASSERT_LT(of_three, before.size());
  write_steps(folder.path(), 4, 4);
  const auto names = names_in(folder.path());
  ASSERT_EQ(names.size(), 2u) << "files that another process has open are not appended to";
  EXPECT_EQ(folder.read(names[0]), before.substr(0, of_three));
  EXPECT_THAT(folder.read(names[1]), HasSubstr("train/loss"));
}

TEST(EventFile, ANewRunReplacesOnlyThePreviousRun) {
  const ScratchFolder folder;
  folder.write("events.out.tfevents.1.other", "theirs");
  write_steps(folder.path(), 1, 5);
  const auto before = names_in(folder.path());
  { const EventFile nothing_written(folder.path(), {}); }
  EXPECT_EQ(names_in(folder.path()), before);
  write_steps(folder.path(), 1, 2);
  const auto names = names_in(folder.path());
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(folder.read("events.out.tfevents.1.other"), "theirs");
  EXPECT_NE(names[1], before[1]) << "a file that another process has open is not rewritten";
  EXPECT_EQ(events_up_to(folder.read(names[1]), {2}), folder.read(names[1]).size());
}

TEST(EventFile, AnIncompleteOrDamagedRecordEndsAFile) {
  const ScratchFolder folder;
  write_steps(folder.path(), 1, 3);
  std::string text = all_in(folder);
  const std::size_t whole = text.size(), of_two = events_up_to(text, {2});
  EXPECT_EQ(events_up_to(text, {3}), whole);
  EXPECT_EQ(events_up_to(text.substr(0, whole - 1), {3}), of_two);
  text[whole - 6] ^= 1;
  EXPECT_EQ(events_up_to(text, {3}), of_two);
  text[of_two] ^= 1;  // the length
  EXPECT_EQ(events_up_to(text, {3}), of_two);
}

// A field claims to be longer than its event, but is not read beyond it. The next record's length would look like a
// step of 9.
TEST(EventFile, AFieldEndsWithItsEvent) {
  const std::string text = record_of("\x2a\x05") + record_of(std::string(0x091000, '\x07'));
  EXPECT_EQ(events_up_to(text, {3}), text.size());
}

TEST(EventFile, NamesAFolderThatCannotBeMade) {
  const ScratchFolder folder;
  const fs::path file = folder.write("file", "");
  EXPECT_FAILURE(EventFile(file / "below", {}), Exit::failed,
                 testing::AllOf(HasSubstr("report.tensorboard = "), HasSubstr("file/below")));
}

// RFC 3720, B.4.
TEST(Crc32c, MatchesTheRfcsExamples) {
  std::string rising, falling;
  for (char c = 0; c < 32; ++c) {
    rising += c;
    falling += static_cast<char>(31 - c);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

TEST(Crc32c, MatchesTheStandardCheckAndTheEmptyString) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

}  // namespace
}  // namespace strata::runtime

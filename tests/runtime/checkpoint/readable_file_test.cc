// Distinguishes damaged files from files that cannot be examined.
#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>

#include "runtime/checkpoint/file_system.h"
#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ReadableFileTest : public testing::Test {
 protected:
  ReadableFileTest() { folder_.write("file", "0123456789"); }
  fs::path path(const char* name) const { return folder_.path() / name; }
  // Opens the file named "file" and reads it.
  std::string text() const {
    const ReadableFile file(path("file"));
    std::string out(file.bytes(), '\0');
    file.read(0, std::as_writable_bytes(std::span(out)));
    return out;
  }
  tests::ScratchFolder folder_;
};

TEST_F(ReadableFileTest, ReadsAnyPart) {
  EXPECT_EQ(text(), "0123456789");
  std::array<std::byte, 2> two{};
  ReadableFile(path("file")).read(8, two);
  EXPECT_EQ(two[1], std::byte{'9'});
}

TEST_F(ReadableFileTest, ReportsObservedDamage) {
  EXPECT_FAILURE(ReadableFile(path("none")), Exit::corrupt, HasSubstr("none is missing"));
  EXPECT_FAILURE(ReadableFile(path("file/inside")), Exit::corrupt, HasSubstr("is missing"));
  EXPECT_FAILURE(ReadableFile(folder_.path()), Exit::corrupt, HasSubstr("is not a regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FAILURE(ReadableFile(path("pipe")), Exit::corrupt, HasSubstr("is not a regular file"));
  const ReadableFile file(path("file"));
  fs::resize_file(path("file"), 4);
  std::array<std::byte, 10> ten{};
  EXPECT_FAILURE(file.read(0, ten), Exit::corrupt, HasSubstr("it ends at offset 4"));
}

TEST_F(ReadableFileTest, OtherSystemErrorsAreNotDamage) {
  {
    const tests::FewFiles none(0);
    EXPECT_FAILURE((void)text(), Exit::failed, AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
  }
  fs::permissions(path("file"), fs::perms::none);
  {
    fs::permissions(folder_.path(), fs::perms::all);
    const tests::WithoutRights nobody;
    EXPECT_FAILURE((void)text(), Exit::failed, AllOf(HasSubstr("Permission denied"), HasSubstr("give this user")));
  }
  fs::permissions(path("file"), fs::perms::all);
  EXPECT_FAILURE(tests::with_failing({SYS_openat}, ENOMEM, [&] { (void)text(); }), Exit::failed,
                 AllOf(HasSubstr("Cannot allocate memory"), HasSubstr("free some memory")));
  EXPECT_FAILURE(tests::with_failing({SYS_pread64}, EIO, [&] { (void)text(); }), Exit::failed,
                 AllOf(HasSubstr("file cannot be read: Input/output error"), HasSubstr("drive")));
}

TEST_F(ReadableFileTest, TypeAtReportsNotFoundOnlyForMissingFiles) {
  EXPECT_EQ(type_at(path("file")), fs::file_type::regular);
  EXPECT_EQ(type_at(folder_.path()), fs::file_type::directory);
  EXPECT_EQ(type_at(path("none")), fs::file_type::not_found);
  EXPECT_EQ(type_at(path("file/inside")), fs::file_type::not_found);
  fs::create_symlink(path("loop"), path("loop"));
  EXPECT_FAILURE((void)type_at(path("loop")), Exit::failed, HasSubstr("loop cannot be looked up"));
  fs::permissions(folder_.path(), fs::perms::none);
  {
    const tests::WithoutRights nobody;
    EXPECT_FAILURE((void)type_at(path("none")), Exit::failed, HasSubstr("Permission denied"));
  }
  fs::permissions(folder_.path(), fs::perms::owner_all);
}

}  // namespace
}  // namespace strata::runtime

#include "base/files/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MappedFileTest, ExplainsBrokenLinksAndLfsPointers) {
  const tests::ScratchFolder folder;
  std::filesystem::create_symlink("../../blobs/0123abcd", folder.path() / "model.safetensors");
  EXPECT_FAILURE(MappedFile(folder.path() / "model.safetensors"), Exit::usage,
                 AllOf(HasSubstr("model.safetensors is a link to ../../blobs/0123abcd"), HasSubstr("download")));
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n";
  folder.write("tokenizer.json", pointer);
  EXPECT_FAILURE(MappedFile(folder.path() / "tokenizer.json"), Exit::usage,
                 AllOf(HasSubstr("tokenizer.json is a Git LFS pointer"), HasSubstr("git lfs pull")));
  // A text that only quotes a pointer is still a text.
  folder.write("a.txt", "The first line is:\n" + pointer);
  EXPECT_GT(MappedFile(folder.path() / "a.txt").bytes().size(), pointer.size());
  EXPECT_FAILURE(MappedFile(folder.path() / "absent"), Exit::usage, HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace strata

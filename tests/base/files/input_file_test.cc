#include "base/files/input_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(InputFile, ReadsOnlyRegularFiles) {
  const tests::ScratchFolder folder;
  const std::string text(200'000, 'x');
  EXPECT_EQ(read_input(folder.write("file", text), "the file", 1 << 20), text);
  EXPECT_FAILURE((void)read_input(folder.path() / "file", "the file", 1000), Exit::usage,
                 HasSubstr("the file is larger"));
  EXPECT_FAILURE((void)read_input(folder.path() / "none", "the file", 1000), Exit::usage,
                 HasSubstr("the file cannot be read: No such file"));
  const fs::path pipe = folder.path() / "pipe", socket = folder.path() / "socket";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Descriptor listening(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket.string().size(), sizeof address.sun_path);
  std::strcpy(address.sun_path, socket.c_str());
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  for (const fs::path& path : {pipe, socket, folder.path(), fs::path("/dev/zero"), fs::path("/dev/full")})
    for (const Pipes pipes : {Pipes::refused, Pipes::handed_over})
      EXPECT_FAILURE((void)read_input(path, "the file", 1000, pipes), Exit::usage,
                     testing::StrEq("the file is not a regular file"));
}

TEST(InputFile, WaitsForAPipeFromTheShell) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Descriptor from(ends[0]), to(ends[1]);
  const fs::path path = "/dev/fd/" + std::to_string(from.get());
  EXPECT_FAILURE((void)read_input(path, "it", 100), Exit::usage, HasSubstr("not a regular file"));
  const Descriptor file = open_input(path, "it", Pipes::handed_over);
  EXPECT_EQ(::fcntl(file.get(), F_GETFL) & O_NONBLOCK, 0);
  ASSERT_EQ(::write(to.get(), "text", 4), 4);
  to.reset();
  EXPECT_EQ(read_input(file, "it", 100), "text");
}

}  // namespace
}  // namespace strata

#include "launcher/control/service/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using tests::failure_of;

Descriptor visit(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// Whether the other end closes within five seconds.
bool is_shut_out(const Descriptor& socket) {
  const timeval wait{5, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  char byte = 0;
  return recv(socket.get(), &byte, 1, 0) == 0;
}

TEST(ListenerTest, MakesAPrivateSocketAndRemovesIt) {
  const tests::ScratchFolder folder;
  const auto path = folder.path() / "s";
  {
    const Listener listener = Listener::unix_socket(path, "control.listen");
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ListenerTest, ReportsObstaclesInOneSentence) {
  const tests::ScratchFolder folder;
  const auto path = folder.path() / "s";
  const Listener listener = Listener::unix_socket(path, "control.listen");
  const Error taken = failure_of([&] { Listener::unix_socket(path, "control.listen"); });
  EXPECT_EQ(taken.code(), Exit::usage);
  EXPECT_THAT(taken.what(), HasSubstr("control.listen: " + path.string() + " exists already"));
  EXPECT_TRUE(std::filesystem::exists(path)) << "it belongs to the other run";
  EXPECT_THAT(
      failure_of([&] { Listener::unix_socket(folder.path() / std::string(120, 'x'), "control.listen"); }).what(),
      HasSubstr("is too long for a socket"));
  EXPECT_THAT(failure_of([&] { Listener::unix_socket(folder.path() / "no" / "s", "control.listen"); }).what(),
              HasSubstr("No such file"));
  const Listener tcp = Listener::tcp({"127.0.0.1", 0}, "control.metrics");
  const Error in_use = failure_of([&] { Listener::tcp({"127.0.0.1", tcp.port()}, "control.metrics"); });
  EXPECT_EQ(in_use.code(), Exit::usage);
  EXPECT_THAT(in_use.what(), HasSubstr("Address already in use"));
  EXPECT_THAT(failure_of([] {
                Listener::tcp({"no.such.host.invalid", 1}, "control.metrics");
              }).what(),
              HasSubstr("the host no.such.host.invalid is not found"));
}

// The state after SIGKILL: the name exists, and no process listens.
TEST(ListenerTest, ReplacesTheSocketOfAnEndedRun) {
  const tests::ScratchFolder folder;
  const auto path = folder.path() / "s";
  {
    const Listener first = Listener::unix_socket(folder.path() / "first", "k");
    std::filesystem::create_hard_link(folder.path() / "first", path);
  }
  EXPECT_EQ(error_of_connecting(path), ECONNREFUSED);
  const Listener listener = Listener::unix_socket(path, "k");
  EXPECT_EQ(error_of_connecting(path), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "only its own name";
  const auto file = folder.write("file", "kept");
  EXPECT_THAT(failure_of([&] { Listener::unix_socket(file, "k"); }).what(), HasSubstr("exists already"));
  EXPECT_TRUE(std::filesystem::is_regular_file(file));
}

TEST(ListenerTest, RecognisesLocalAddresses) {
  EXPECT_TRUE(is_loopback({"127.0.0.1", 1}, "k"));
  EXPECT_TRUE(is_loopback({"127.9.9.9", 1}, "k"));
  EXPECT_TRUE(is_loopback({"::1", 1}, "k"));
  EXPECT_FALSE(is_loopback({"0.0.0.0", 1}, "k"));
  EXPECT_FALSE(is_loopback({"::", 1}, "k"));
  EXPECT_FALSE(is_loopback({"10.0.0.1", 1}, "k"));
}

TEST(ListenerTest, ParsesAddresses) {
  EXPECT_EQ(host_and_port("n1:80").host, "n1");
  EXPECT_EQ(host_and_port("n1:80").port, 80);
  EXPECT_EQ(host_and_port("[::1]:443").host, "::1");
}

TEST(ConnectionLimiterTest, AdmitsUpToTheLimitAndMoreWhenSomeLeave) {
  const tests::ScratchFolder folder;
  const auto path = folder.path() / "s";
  std::mutex mutex;
  std::vector<Descriptor> inside;
  const ConnectionLimiter limiter(Listener::unix_socket(path, "k"), 4, [&](Descriptor connection) {
    const std::lock_guard lock(mutex);
    inside.push_back(std::move(connection));
  });
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return inside.size();
  };
  std::vector<Descriptor> connections;
  for (int i = 0; i < 4; ++i) connections.push_back(visit(path));
  for (int polls = 0; polls < 500 && count() < 4; ++polls) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(count(), 4U);
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(is_shut_out(visit(path))) << i;
  EXPECT_EQ(count(), 4U);
  {
    const std::lock_guard lock(mutex);
    inside.clear();
  }
  const Descriptor later = visit(path);
  for (int polls = 0; polls < 500 && count() < 1; ++polls) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(count(), 1U);
}

TEST(ConnectionLimiterTest, ClosesTheOldestUnprovenConnectionForANewOne) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  std::mutex mutex;
  std::vector<Descriptor> inside;
  std::atomic<int> proven{0};
  const ConnectionLimiter limiter(std::move(listener), 2,
                                  [&](Descriptor connection) {
                                    const std::lock_guard lock(mutex);
                                    inside.push_back(std::move(connection));
                                  },
                                  {std::chrono::hours(1), [&](int from) { return from == proven.load(); }});
  const auto come = [&] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  };
  const Descriptor first = come();
  sockaddr_in own{};
  socklen_t size = sizeof own;
  ASSERT_EQ(getsockname(first.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
  proven = ntohs(own.sin_port);
  const Descriptor second = come(), third = come();
  EXPECT_TRUE(is_shut_out(second));
  char byte = 0;
  EXPECT_EQ(recv(first.get(), &byte, 1, MSG_DONTWAIT), -1) << "it has given proof";
  EXPECT_EQ(recv(third.get(), &byte, 1, MSG_DONTWAIT), -1);
}

}  // namespace
}  // namespace strata::launcher::control

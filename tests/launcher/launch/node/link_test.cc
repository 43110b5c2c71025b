#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "launcher/launch/node/agent.h"
#include "tests/failure.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

Descriptor stranger(int port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(Link, MeasuresBothDirectionsAndLatency) {
  LinkListener listener("a token of ours");
  std::jthread server([&] { listener.serve_one(20); });
  const LinkSpeed speed = measure_link("127.0.0.1", listener.port(), "a token of ours");
  EXPECT_GT(speed.gbit_per_s, 0);
  EXPECT_GT(speed.microseconds, 0);
  EXPECT_EQ(json_of({1.5, 20}).members(), R"("gbit_per_s":1.5000,"microseconds":20.0)");
}

// A stranger without the token gets no answer, and does not block the peer that has the token.
TEST(Link, RejectsStrangers) {
  LinkListener listener("a token of ours");
  std::jthread server([&] { listener.serve_one(20); });
  const Descriptor fd = stranger(listener.port());
  ASSERT_EQ(send(fd.get(), "another's token", 15, MSG_NOSIGNAL), 15);
  char byte = 0;
  EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
  EXPECT_GT(measure_link("127.0.0.1", listener.port(), "a token of ours").gbit_per_s, 0);
}

TEST(Link, AListenerWithoutACallerEnds) {
  const auto start = std::chrono::steady_clock::now();
  LinkListener("token").serve_one(0.2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Link, NamesAClosedPort) {
  int port = 0;
  { port = LinkListener("token").port(); }
  EXPECT_FAILURE(measure_link("127.0.0.1", port, "token"), Exit::failed,
                 testing::AllOf(HasSubstr("no connection to 127.0.0.1"), HasSubstr("open the ports")));
  EXPECT_FAILURE(measure_link("n1", 1, "token"), Exit::failed, HasSubstr("not an address"));
}

}  // namespace
}  // namespace strata::launcher

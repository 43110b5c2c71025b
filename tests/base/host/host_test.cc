#include "base/host/host.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/utsname.h>

#include <cstring>

namespace strata {
namespace {

TEST(HostName, IsWhatTheKernelSays) {
  utsname name{};
  ASSERT_EQ(::uname(&name), 0);
  EXPECT_EQ(host_name(), name.nodename);
}

sockaddr_in first_of(const Found& found) {
  sockaddr_in out{};
  if (found.addresses && found.addresses->ai_addrlen == sizeof out)
    std::memcpy(&out, found.addresses->ai_addr, sizeof out);
  return out;
}

TEST(LookUp, FindsWhereStreamsGo) {
  const Found found = look_up("127.0.0.2", 4711);
  ASSERT_TRUE(found.addresses);
  EXPECT_EQ(found.why, "");
  EXPECT_EQ(found.addresses->ai_socktype, SOCK_STREAM);
  EXPECT_EQ(first_of(found).sin_family, AF_INET);
  EXPECT_EQ(ntohs(first_of(found).sin_port), 4711);
  EXPECT_EQ(ntohl(first_of(found).sin_addr.s_addr), 0x7f000002u);
  EXPECT_EQ(first_of(look_up("127.0.0.2")).sin_port, 0);
}

// With this flag no resolver is asked, so a name is not an address.
TEST(LookUp, SaysWhyThereIsNone) {
  const Found found = look_up("localhost", 80, AI_NUMERICHOST);
  EXPECT_FALSE(found.addresses);
  EXPECT_EQ(found.why, gai_strerror(EAI_NONAME));
}

TEST(OwnProgram, IsTheFileThatRuns) {
  ASSERT_TRUE(std::filesystem::exists(own_program()));
  EXPECT_TRUE(std::filesystem::equivalent(own_program(), "/proc/self/exe"));
}

}  // namespace

}  // namespace strata

#include "launcher/control/service/service_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "launcher/control/client/client.h"
#include "launcher/control/service/listener.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using tests::failure_of;

class TargetTest : public testing::Test {
 protected:
  TargetTest() { setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }
  ~TargetTest() override { unsetenv("XDG_RUNTIME_DIR"); }
  tests::ScratchFolder folder_;
};

TEST_F(TargetTest, FindsRunsByFolderSocketAndName) {
  const ServiceAddress address{"n1", 12, "/run/s", "", false};
  const auto file = folder_.write("ck/control.json", to_json(address));
  for (const std::string& target : {(folder_.path() / "ck").string(), file.string()}) {
    EXPECT_EQ(find_service(target).socket, "/run/s");
    EXPECT_EQ(find_service(target).host, "n1");
  }
  EXPECT_EQ(find_service("unix:/x").socket, "/x");
  EXPECT_EQ(find_service("127.0.0.1:5").address, "127.0.0.1:5");
  EXPECT_FALSE(target_of({.target = "127.0.0.1:5"}).tls);
  EXPECT_TRUE(target_of({.target = "10.1.2.3:5"}).tls) << "nothing is sent in plain text to another machine";
  EXPECT_THAT(failure_of([&] { (void)find_service(folder_.path().string()); }).what(),
              HasSubstr("control.json does not exist"));
  EXPECT_THAT(failure_of([&] { (void)find_service("nonsense"); }).what(), HasSubstr("is neither a run's folder"));
  EXPECT_THAT(failure_of([&] { (void)find_service(""); }).what(), HasSubstr("no run of this user is found"));
  folder_.write("ck/control.json", "{\"host\": 1}");
  EXPECT_THAT(failure_of([&] { (void)find_service((folder_.path() / "ck").string()); }).what(),
              HasSubstr("was not written by a run"));
  const Listener a = Listener::unix_socket(socket_folder() / "a.sock", "k");
  const Listener b = Listener::unix_socket(socket_folder() / "b.sock", "k");
  EXPECT_THAT(failure_of([&] { (void)find_service(""); }).what(), HasSubstr("2 runs of this user are found here"));
  EXPECT_EQ(find_service((socket_folder() / "a.sock").string()).socket, (socket_folder() / "a.sock").string());
}

TEST_F(TargetTest, RefusesTargetsThatNameNoRun) {
  for (const std::string target :
       {":5", "h:", "h:0", "h:65536", "h:80x", "h:-1", "h: 5", "::1:50051", "[::1", "[::1]", "[]:5", "a b:5", "-x:5",
        "a\nb:5", "%00:5", "dns:///a:1", "http://localhost:5", "\xc3\xa9:5"})
    EXPECT_FAILURE((void)find_service(target), Exit::usage,
                   StartsWith(target + " is neither a run's folder, nor a socket, nor HOST:PORT"));
  EXPECT_FAILURE((void)find_service("unix:"), Exit::usage, HasSubstr("unix: names no socket"));
  EXPECT_FAILURE((void)find_service("unix:/" + std::string(200, 'x')), Exit::usage, HasSubstr("too long for a socket"));
  for (const std::string target : {"h:1", "h:65535", "n-1.a_b:5", "[::1]:50051", "10.0.0.1:7000"})
    EXPECT_EQ(find_service(target).address, target);
}

TEST_F(TargetTest, ControlFilesMustNameAValidAddress) {
  for (const std::string address : {"h", "h:0", "h:99999", "::1:5", "h:5 -o x"}) {
    const auto file = folder_.write("control.json", to_json({"n1", 12, "", address, false}));
    EXPECT_FAILURE((void)find_service(file.string()), Exit::failed, HasSubstr("its address is not HOST:PORT"));
  }
}

}  // namespace
}  // namespace strata::launcher::control

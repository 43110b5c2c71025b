#include "launcher/control/service/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/host/host.h"
#include "launcher/control/client/client.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using tests::failure_of;

class EndpointsTest : public testing::Test {
 protected:
  EndpointsTest() { setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }
  ~EndpointsTest() override { unsetenv("XDG_RUNTIME_DIR"); }
  void secure() {
    const Credentials made = make_credentials();
    recipe_.tls_cert = folder_.write("cert", made.cert);
    recipe_.tls_key = folder_.write("key", made.key);
    std::filesystem::permissions(*recipe_.tls_key, std::filesystem::perms(0600));
    recipe_.token_file = folder_.write("token", made.token);
    chmod(recipe_.token_file->c_str(), 0600);
  }
  std::string refusal() {
    const Error error = failure_of([&] { (void)open_endpoints(recipe_); });
    EXPECT_EQ(error.code(), Exit::usage);
    return error.what();
  }
  tests::ScratchFolder folder_;
  runtime::Recipe::Control recipe_;
};

TEST_F(EndpointsTest, ListensInAPrivateFolderByDefault) {
  const Endpoints endpoints = open_endpoints(recipe_);
  ASSERT_TRUE(endpoints.service);
  EXPECT_EQ(endpoints.service->path().parent_path(), folder_.path() / "strata");
  struct stat status {};
  ASSERT_EQ(stat((folder_.path() / "strata").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  EXPECT_EQ(find_service("").socket, endpoints.service->path().string()) << "the only run";
  EXPECT_EQ(endpoints.address.grpc_target(), "unix:" + endpoints.service->path().string());
}

TEST_F(EndpointsTest, ReportsAMissingPrivateFolderAndContinues) {
  std::filesystem::create_directory(folder_.path() / "strata");
  chmod((folder_.path() / "strata").c_str(), 0777);
  EXPECT_THAT(failure_of([] { (void)find_service(""); }).what(),
              HasSubstr("is not a folder that this user alone can enter"))
      << "the listener there may belong to another user";
  const Endpoints endpoints = open_endpoints(recipe_);
  EXPECT_FALSE(endpoints.service);
  EXPECT_THAT(endpoints.refusal, HasSubstr("is not a folder that this user alone can enter"));
}

TEST_F(EndpointsTest, RemoteAccessNeedsTlsAndAToken) {
  recipe_.listen = "0.0.0.0:0";
  EXPECT_THAT(refusal(), HasSubstr("lets other machines control this run"));
  secure();
  recipe_.token_file.reset();
  EXPECT_THAT(refusal(), HasSubstr("lets other machines control this run"));
  secure();
  const Endpoints endpoints = open_endpoints(recipe_);
  EXPECT_TRUE(endpoints.address.tls);
  EXPECT_THAT(endpoints.address.address, testing::StartsWith(host_name() + ":")) << "the address that others use";
  recipe_.listen = "127.0.0.1:0";
  recipe_.tls_cert.reset();
  recipe_.tls_key.reset();
  EXPECT_FALSE(open_endpoints(recipe_).address.tls);
}

TEST_F(EndpointsTest, PublicMetricsNeedConsent) {
  recipe_.listen = "off";
  recipe_.metrics = "0.0.0.0:0";
  EXPECT_THAT(refusal(), HasSubstr("control.metrics_public = true"));
  recipe_.metrics_public = true;
  EXPECT_FALSE(open_endpoints(recipe_).metrics_credentials.tls());
  recipe_.metrics_public = false;
  secure();
  const Endpoints endpoints = open_endpoints(recipe_);
  EXPECT_TRUE(endpoints.metrics_credentials.tls());
  EXPECT_THAT(endpoints.metrics_at, HasSubstr("https://"));
}

TEST_F(EndpointsTest, ReportsObstaclesBeforeTheStart) {
  recipe_.listen = "unix:" + (folder_.path() / "s").string();
  const Endpoints first = open_endpoints(recipe_);
  EXPECT_THAT(refusal(), HasSubstr("exists already"));
  recipe_.listen = "127.0.0.1:0";
  const Endpoints tcp = open_endpoints(recipe_);
  recipe_.listen = tcp.address.address;
  EXPECT_THAT(refusal(), HasSubstr("Address already in use"));
}

TEST_F(EndpointsTest, NamesBothKeysThatShareAPort) {
  recipe_.listen = recipe_.metrics = "127.0.0.1:7001";
  EXPECT_THAT(refusal(), HasSubstr("control.listen and control.metrics both name 127.0.0.1:7001"));
  recipe_.listen = recipe_.metrics = "127.0.0.1:0";  // any free port
  EXPECT_TRUE(open_endpoints(recipe_).metrics);
}

// Anyone may own a folder of checkpoints. Its control.json must not start a program here or receive a secret.
TEST_F(EndpointsTest, TrustsOnlyFilesOfTheUser) {
  const auto refusal_of = [&](const ServiceAddress& address) {
    folder_.write("ck/control.json", to_json(address));
    return std::string(failure_of([&] { (void)find_service((folder_.path() / "ck").string()); }).what());
  };
  for (const char* host : {"-oProxyCommand=touch x", "a b", "", "n1;x", "n1\n"})
    EXPECT_THAT(refusal_of({host, 1, "/s", "", false}), HasSubstr("its host is not a name")) << host;
  for (const char* address : {"unix:/s", "dns://10.0.0.1/x:5", "n1", "n1:", "-x:5"})
    EXPECT_THAT(refusal_of({"n1", 1, "", address, false}), HasSubstr("is not HOST:PORT")) << address;
  folder_.write("ck/control.json", to_json({"n1", 1, "", "10.1.2.3:5", false}));
  EXPECT_TRUE(target_of({.target = (folder_.path() / "ck").string()}).tls) << "regardless of the file";
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown((folder_.path() / "ck/control.json").c_str(), 12345, 12345), 0);
  EXPECT_THAT(failure_of([&] { (void)find_service((folder_.path() / "ck").string()); }).what(),
              HasSubstr("belongs to another user (UID 12345)"));
}

}  // namespace
}  // namespace strata::launcher::control

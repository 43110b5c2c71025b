#include "launcher/launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "base/host/host.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Host> lines(std::string_view text) {
  return parse_host_file(text, "hosts");
}

TEST(Hosts, ReadsOpenMpiDeepSpeedAndMpiJobFiles) {
  EXPECT_THAT(lines("# ours\nn1 slots=8\n\nn2 slots=4 max_slots=8   # small\nn3\r\n"),
              ElementsAre(Host{"n1", 8}, Host{"n2", 4}, Host{"n3", {}}));
  EXPECT_THAT(lines("train-worker-0.train.default.svc slots=2"),
              ElementsAre(Host{"train-worker-0.train.default.svc", 2}));
  EXPECT_THAT(lines("n1:3\nn2:1"), ElementsAre(Host{"n1", 3}, Host{"n2", 1}));
  EXPECT_THAT(lines("n1 slots = 2\nn2 slots= 3 max_slots =\t4\n"), ElementsAre(Host{"n1", 2}, Host{"n2", 3}));
  EXPECT_THAT(lines("\xEF\xBB\xBFn1 slots=2\r\n"), ElementsAre(Host{"n1", 2})) << "with a byte order mark";
}

TEST(Hosts, ARepeatedNameAddsItsSlots) {
  EXPECT_THAT(lines("n1 slots=2\nn2 slots=1\nn1 slots=3"), ElementsAre(Host{"n1", 5}, Host{"n2", 1}));
  EXPECT_THAT(read_hosts("n1:2,n2,n1:3"), ElementsAre(Host{"n1", 5}, Host{"n2", {}}));
}

// PBS_NODEFILE and LSF write names in this way.
TEST(Hosts, EachMentionWithoutANumberIsASlot) {
  EXPECT_THAT(lines("n1\nn1"), ElementsAre(Host{"n1", 2}));
  EXPECT_THAT(lines("n1\nn2\nn1\nn2\nn1\nn3\n"), ElementsAre(Host{"n1", 3}, Host{"n2", 2}, Host{"n3", {}}));
  EXPECT_THAT(lines("n1 slots=4\nn1"), ElementsAre(Host{"n1", 5}));
  EXPECT_THAT(lines("n1\nn1:4"), ElementsAre(Host{"n1", 5}));
  EXPECT_THAT(lines("n1\nn1 max_slots=4\n"), ElementsAre(Host{"n1", 2}));
  EXPECT_THAT(read_hosts("localhost,localhost"), ElementsAre(Host{"localhost", 2}));
  EXPECT_THAT(read_hosts("n1:2, n1, n2"), ElementsAre(Host{"n1", 3}, Host{"n2", {}}));
}

TEST(Hosts, ReadsWordsBetweenCommas) {
  EXPECT_THAT(read_hosts("n1:8, n2"), ElementsAre(Host{"n1", 8}, Host{"n2", {}}));
}

TEST(Hosts, ReadsAFileByName) {
  const tests::ScratchFolder folder;
  EXPECT_THAT(read_hosts(folder.write("hosts", "n1 slots=2\n").string()), ElementsAre(Host{"n1", 2}));
  EXPECT_FAILURE(read_hosts((folder.path() / "nowhere").string()), Exit::usage, HasSubstr("there is no such file"));
  EXPECT_FAILURE(read_hosts(folder.write("empty", "# nothing\n").string()), Exit::usage,
                 HasSubstr("no line names a node"));
}

TEST(Hosts, ATypoIsNamedWithItsLine) {
  EXPECT_FAILURE(lines("n1 slots=2\nn2 slot=2"), Exit::usage,
                 AllOf(HasSubstr("hosts line 2"), HasSubstr("\"slot=2\""), HasSubstr("NAME slots=N")));
  for (const char* wrong : {"n1 slots=", "n1 slots=two", "n1 slots=0", "n1 slots=2x", "n1 slots=4097", "n1 2",
                            "n1:", "n1:2 slots=2", "n1:two"})
    EXPECT_FAILURE(lines(wrong), Exit::usage, HasSubstr("is not valid"));
}

TEST(Hosts, ALineThatContradictsItselfIsRefused) {
  EXPECT_FAILURE(lines("n1\nn2 slots=2 slots=3"), Exit::usage,
                 AllOf(HasSubstr("hosts line 2"), HasSubstr("\"slots=3\" comes after another slots")));
  EXPECT_FAILURE(lines("n1 slots=2 slots=2"), Exit::usage, HasSubstr("comes after another slots"));
  EXPECT_FAILURE(lines("n1 max_slots=2 slots=1 max-slots=3"), Exit::usage, HasSubstr("comes after another max-slots"));
  for (const char* wrong : {"n1 slots=2 max_slots=1", "n1 max-slots=1 slots=2"})
    EXPECT_FAILURE(lines(wrong), Exit::usage,
                   AllOf(HasSubstr("hosts line 1"), HasSubstr("slots=2 is more than max_slots=1")));
  EXPECT_THAT(lines("n1 slots=2 max_slots=2"), ElementsAre(Host{"n1", 2}));
}

// A zero byte would end a message.
TEST(Hosts, RefusesABinaryFile) {
  using namespace std::string_literals;
  for (const auto& [text, byte] : {std::pair("n1\nlocalhost\0x\n"s, "0x00"), std::pair("n1\nn\0002\0"s, "0x00"),
                                   std::pair("n1\nn2\x1b[31m"s, "0x1b"), std::pair("n1\n# a\x01"s, "0x01")})
    EXPECT_FAILURE(lines(text), Exit::usage,
                   AllOf(HasSubstr("hosts line 2 has the byte "s + byte), testing::EndsWith("(ASCII or UTF-8)")));
}

TEST(Hosts, RefusesAFolder) {
  const tests::ScratchFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  fs::create_directory("no-such-node.invalid");
  EXPECT_FAILURE(require_addresses(read_hosts("no-such-node.invalid"), "--hosts", 0), Exit::usage,
                 HasSubstr("no-such-node.invalid in --hosts is a folder here"));
  EXPECT_FAILURE(read_hosts("./no-such-node.invalid"), Exit::usage,
                 HasSubstr("--hosts ./no-such-node.invalid is a folder"));
  // A node may have the same name as a folder.
  fs::create_directory("localhost");
  require_addresses(read_hosts("localhost"), "--hosts", 0);
  fs::current_path(before);
}

// During its lifetime, a fake scontrol that runs this script is in PATH.
class FakeScontrol {
 public:
  explicit FakeScontrol(const std::string& script) : path_(std::getenv("PATH")) {
    const fs::path file = folder_.write("scontrol", "#!/bin/sh\n" + script + "\n");
    fs::permissions(file, fs::perms::owner_all);
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  ~FakeScontrol() { ::setenv("PATH", path_.c_str(), 1); }

 private:
  tests::ScratchFolder folder_;
  std::string path_;
};

TEST(Hosts, PassesOnScontrolsError) {
  {
    const FakeScontrol slurm("echo n1; echo n2");
    EXPECT_THAT(read_hosts("n[1-2]:4"), ElementsAre(Host{"n1", 4}, Host{"n2", 4}));
  }
  {
    const FakeScontrol slurm("echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1");
    EXPECT_FAILURE(read_hosts("n[1-3]"), Exit::usage,
                   AllOf(HasSubstr("\"n[1-3]\" could not be read by scontrol"),
                         HasSubstr("(scontrol: fatal: Could not establish a configuration source)"),
                         HasSubstr("write the names out")));
  }
  const FakeScontrol slurm("exit 3");
  EXPECT_FAILURE(read_hosts("n[1-3]"), Exit::usage, HasSubstr("(exit code 3)"));
}

// Names are used in command lines of ssh.
TEST(Hosts, RefusesInvalidNames) {
  for (const char* wrong : {"-oProxyCommand=x", "-v", "n1;reboot", "$(id)", "`id`", "n1'", ".n1", "n/1"})
    EXPECT_FAILURE(lines(wrong), Exit::usage, HasSubstr("is not a node's name"));
  EXPECT_FAILURE(lines("me@n1"), Exit::usage, HasSubstr("User in ~/.ssh/config"));
  EXPECT_FAILURE(read_hosts("n1,,n2"), Exit::usage, HasSubstr("is not a node's name"));
}

TEST(Hosts, NamesANodeWithoutAnAddress) {
  require_addresses({{"localhost", 1}}, "--hosts", 0);
  EXPECT_FAILURE(require_addresses({{"localhost", 1}, {"no-such-node.invalid", 1}}, "--hosts", 0), Exit::usage,
                 AllOf(HasSubstr("no-such-node.invalid has no address"), HasSubstr("--hosts")));
}

TEST(Hosts, RecognisesThisMachineByAnyName) {
  EXPECT_TRUE(is_this_machine(host_name()));
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_FALSE(is_this_machine("198.51.100.1"));
}

TEST(Hosts, LocalhostNextToOthersIsRefused) {
  require_network_names({{"localhost", 4}}, "--hosts");
  require_network_names({{"127.0.0.1", 1}, {"127.0.0.2", 1}}, "--hosts");
  EXPECT_FAILURE(require_network_names({{"n2", 1}, {"localhost", 1}}, "--hosts"), Exit::usage,
                 AllOf(HasSubstr("--hosts names localhost next to other nodes"), HasSubstr("write ")));
}

TEST(Hosts, AnUnresolvedWordMayBeAMissingFile) {
  EXPECT_FAILURE(require_addresses({{"nodes.invalid", 1}}, "--hosts", 0), Exit::usage,
                 HasSubstr("has no address, and there is no file of that name: "));
}

}  // namespace
}  // namespace strata::launcher

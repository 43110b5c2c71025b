#include "launcher/launch/node/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host/host.h"
#include "launcher/launch/hosts.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Facts, SurviveARoundTrip) {
  const tests::ScratchFolder folder;
  const std::filesystem::path folders[] = {folder.path(), folder.path() / "nowhere"};
  const NodeFacts facts = facts_here(folders);
  EXPECT_EQ(facts.name, host_name());
  EXPECT_THAT(facts.machine, HasSubstr(" net:["));
  EXPECT_EQ(facts.machine, facts_here({}).machine);
  EXPECT_EQ(facts.program, program_hash());
  EXPECT_EQ(facts.program.size(), 32u);
  EXPECT_GT(facts.cores, 0);
  EXPECT_GT(facts.memory, 0u);
  ASSERT_EQ(facts.drives.size(), 2u);
  EXPECT_THAT(facts.drives[0].problem, IsEmpty());
  EXPECT_THAT(facts.drives[0].how, Not(IsEmpty()));
  EXPECT_GT(facts.drives[0].free, 0u);
  EXPECT_THAT(facts.drives[1].problem, HasSubstr("nowhere"));
  const NodeFacts back = parse_facts(to_json(facts));
  EXPECT_EQ(to_json(back), to_json(facts));
}

TEST(Facts, IncludeEveryField) {
  NodeFacts facts;
  facts.name = "a \"node\"";
  facts.machine = "a boot and a network";
  facts.gpus = {"one", "two"};
  facts.driver = "13.0";
  facts.memlock = ~std::uint64_t{0};
  facts.interfaces = {{"eth0", "10.0.0.1"}};
  const NodeFacts back = parse_facts(to_json(facts));
  EXPECT_EQ(back.name, facts.name);
  EXPECT_EQ(back.machine, facts.machine);
  EXPECT_EQ(back.gpus, facts.gpus);
  EXPECT_EQ(back.driver, facts.driver);
  EXPECT_EQ(back.memlock, facts.memlock);
  ASSERT_EQ(back.interfaces.size(), 1u);
  EXPECT_EQ(back.interfaces[0].name, "eth0");
  EXPECT_EQ(back.interfaces[0].address, "10.0.0.1");
}

TEST(Facts, RefuseInvalidText) {
  for (const char* wrong : {"", "{", "{}", "[]", R"({"name":1})"})
    EXPECT_FAILURE(parse_facts(wrong), Exit::failed, HasSubstr("not a node's description of itself"));
}

}  // namespace
}  // namespace strata::launcher

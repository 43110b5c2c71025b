#include "launcher/control/watch/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

#include "comm/communicator.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

// Of a run of one rank, whose node tells.
class HubTest : public testing::Test {
 protected:
  HubTest() {
    Hub::Setup setup;
    setup.limits = {30, 60, 600};
    setup.dump_folder = folder_.path().string();
    setup.say = [this](const std::string& text) { said_.push_back(text); };
    setup.end = [this](const NodeMemory::Verdict& verdict) { ended_ = verdict.text; };
    hub_.emplace(memory_, board_, std::move(setup));
  }
  static pb::NodeReport report(int node = 0) {
    pb::NodeReport out;
    out.set_node(node);
    pb::RankReport& rank = *out.add_ranks();
    rank.set_rank(0);
    rank.set_phase(static_cast<std::uint32_t>(runtime::Phase::training));
    rank.set_step(3);
    rank.set_compute(5'000'000);
    rank.set_pid(1);
    for (std::size_t lane = 0; lane < runtime::kLanes; ++lane) {
      rank.add_place(lane);
      rank.add_age(1);
      rank.add_typical(1);
    }
    return out;
  }
  pb::Status status() {
    pb::Status out;
    hub_->fill(out);
    return out;
  }

  tests::ScratchFolder folder_;
  std::unique_ptr<comm::World> world_ = comm::solo_world();
  NodeMemory memory_{*world_};
  Board board_;
  std::vector<std::string> said_;
  std::optional<std::string> ended_;
  std::optional<Hub> hub_;
};

TEST_F(HubTest, TellsWhatItWasTold) {
  hub_->told(report());
  EXPECT_EQ(status().ranks(0).compute_seconds(), 0.005);
  EXPECT_EQ(status().nodes_size(), 1);
}

TEST_F(HubTest, ADumpWaitsForTheNodesOfTheRunAlone) {
  std::optional<pb::Dump> dump;
  hub_->dump([&](pb::Dump got) { dump = std::move(got); });
  for (const int node : {-1, 1, std::numeric_limits<int>::max()}) {
    pb::NodeReport other = report(node);
    other.set_dump_number(hub_->dump_number());
    other.add_dump()->set_rank(9);
    hub_->told(other);
  }
  hub_->look(false);
  EXPECT_FALSE(dump.has_value()) << "no node of this run has told";
  pb::NodeReport own = report();
  own.set_dump_number(hub_->dump_number());
  own.add_dump()->set_rank(0);
  hub_->told(own);
  hub_->look(false);
  ASSERT_TRUE(dump.has_value());
  ASSERT_EQ(dump->ranks_size(), 1);
  EXPECT_EQ(dump->ranks(0).rank(), 0);
}

// Bytes of a report, some of them others: what can still be read is told, and changes nothing but the rank's figures.
TEST_F(HubTest, TakesReportsOfAnyContent) {
  std::mt19937_64 random(1);
  const std::string plain = report().SerializeAsString();
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = plain;
    const int changes = 1 + static_cast<int>(random() % 8);
    for (int change = 0; change < changes; ++change) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.insert(at, random() % 16, static_cast<char>(random()));
          break;
        default:
          bytes.resize(std::max<std::size_t>(at, 1));
      }
    }
    pb::NodeReport changed;
    if (!changed.ParseFromString(bytes)) continue;
    ++read;
    hub_->told(changed);
    const pb::Status status = this->status();
    ASSERT_EQ(status.ranks_size(), 1);
    ASSERT_EQ(status.ranks(0).rank(), 0);
    ASSERT_GE(status.ranks(0).place_seconds(), 0);
    if (i % 64 == 0) hub_->look(i % 128 == 0);
  }
  EXPECT_GT(read, 1000);
  EXPECT_EQ(ended_, std::nullopt);
  hub_->told(report());
  EXPECT_EQ(status().ranks(0).compute_seconds(), 0.005);
}

}  // namespace
}  // namespace strata::launcher::control

#include "launcher/control/watch/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "comm/communicator.h"
#include "launcher/control/watch/dump.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

// The hub of a run with one rank. Its node sends reports.
class HubTest : public testing::Test {
 protected:
  HubTest() { hub_.emplace(memory_, board_, setup()); }
  Hub::Setup setup() {
    Hub::Setup setup;
    setup.limits = {30, 60, 600};
    setup.dump_folder = folder_.path().string();
    setup.say = [this](const std::string& text) { said_.push_back(text); };
    setup.to_write = 0.3;
    setup.end = [this](const NodeMemory::Verdict& verdict) { ended_ = verdict.text; };
    return setup;
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

TEST_F(HubTest, ReturnsReportedStates) {
  hub_->receive(report());
  EXPECT_EQ(status().ranks(0).compute_seconds(), 0.005);
  EXPECT_EQ(status().nodes_size(), 1);
}

// The rank is the first of a pipeline with two stages.
TEST_F(HubTest, GivesTheMeshCoordinatesOfARank) {
  hub_->receive(report());
  EXPECT_EQ(status().ranks(0).coordinates(), "");
  TaskNames names;
  names.stages.resize(2);
  names.mesh = {2, {}, 0, 1, 2};
  hub_->set_names(names);
  EXPECT_EQ(status().ranks(0).coordinates(), "stage 0");
  pb::Dump dump;
  pb::RankDump& rank = *dump.add_ranks();
  rank.set_rank(1);
  rank.set_node("n1");
  rank.set_coordinates("stage 1");
  EXPECT_THAT(text_of(dump), testing::StartsWith("rank 1 (stage 1) on n1, pid "));
}

TEST_F(HubTest, ADumpWaitsOnlyForNodesOfTheRun) {
  std::optional<pb::Dump> dump;
  hub_->dump([&](pb::Dump got) { dump = std::move(got); });
  for (const int node : {-1, 1, std::numeric_limits<int>::max()}) {
    pb::NodeReport other = report(node);
    other.set_dump_number(hub_->dump_number());
    other.add_dump()->set_rank(9);
    hub_->receive(other);
  }
  hub_->look(false);
  EXPECT_FALSE(dump.has_value()) << "no node of this run has answered";
  pb::NodeReport own = report();
  own.set_dump_number(hub_->dump_number());
  own.add_dump()->set_rank(0);
  hub_->receive(own);
  hub_->look(false);
  ASSERT_TRUE(dump.has_value());
  ASSERT_EQ(dump->ranks_size(), 1);
  EXPECT_EQ(dump->ranks(0).rank(), 0);
}

// A request during a collection gets an answer, too, and the ranks are interrupted only once.
TEST_F(HubTest, OneCollectionAnswersAllConcurrentRequests) {
  std::vector<int> ranks(3, -1);
  const auto ask = [&](std::size_t who) {
    hub_->dump([&, who](const pb::Dump& dump) { ranks[who] = dump.ranks_size(); });
  };
  const auto answer = [&] {
    pb::NodeReport own = report();
    own.set_dump_number(hub_->dump_number());
    own.add_dump()->set_rank(0);
    hub_->receive(own);
    hub_->look(false);
  };
  ask(0);
  ask(1);
  EXPECT_EQ(hub_->dump_number(), 1U);
  answer();
  EXPECT_THAT(ranks, testing::ElementsAre(1, 1, -1));
  ask(2);
  EXPECT_EQ(hub_->dump_number(), 1U) << "not at once";
  for (int polls = 0; polls < 2000 && hub_->dump_number() == 1; ++polls) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    hub_->look(false);
  }
  EXPECT_EQ(hub_->dump_number(), 2U);
  answer();
  EXPECT_EQ(ranks[2], 1);
}

TEST_F(HubTest, DumpsEndOnceRank0HasLeft) {
  int answers = 0;
  const auto count = [&](const pb::Dump& dump) {
    EXPECT_EQ(dump.ranks_size(), 0);
    ++answers;
  };
  hub_->dump(count);
  hub_->leave();
  EXPECT_EQ(answers, 1);
  hub_->dump(count);
  EXPECT_EQ(answers, 2);
}

class StuckHubTest : public HubTest {
 protected:
  // A report in which the node's only rank is stuck.
  static pb::NodeReport stuck_report() {
    pb::NodeReport out = report();
    pb::RankReport& rank = *out.mutable_ranks(0);
    rank.set_phase_age(std::int64_t{700} * 1'000'000'000);
    for (std::size_t lane = 0; lane < runtime::kLanes; ++lane) {
      rank.set_place(static_cast<int>(lane), runtime::packed({4, 0, true}));
      rank.set_age(static_cast<int>(lane), std::int64_t{700} * 1'000'000'000);
    }
    return out;
  }
  // Sends a report of the rank's task, and returns the resulting verdict; empty if none follows within seconds.
  std::string verdict() {
    pb::NodeReport stuck = stuck_report();
    for (int polls = 0; polls < 1000 && !ended_; ++polls) {
      stuck.set_dump_number(hub_->dump_number());
      if (hub_->dump_number() > 0 && stuck.dump_size() == 0) stuck.add_dump()->set_rank(0);
      hub_->receive(stuck);
      hub_->look(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ended_.value_or("");
  }
  std::filesystem::path file() const { return folder_.path() / fmt::format("state-of-ranks-{}.txt", getpid()); }
};

TEST_F(StuckHubTest, WritesTheStateOfAllRanksAndEndsTheRun) {
  EXPECT_THAT(verdict(),
              testing::AllOf(testing::HasSubstr("for 700 s; the run ends, and the state of all ranks is in "),
                             testing::HasSubstr(file().string())));
  std::ifstream in(file());
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, testing::HasSubstr("rank 0 on "));
}

TEST_F(StuckHubTest, ARunThatFinishesMeanwhileLeavesNoFile) {
  for (int polls = 0; polls < 1000 && hub_->dump_number() == 0; ++polls) {
    hub_->receive(stuck_report());
    hub_->look(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GT(hub_->dump_number(), 0U) << "no state of the ranks was requested";
  hub_->leave();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a file would be written meanwhile
  hub_->look(false);
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_FALSE(ended_);
}

TEST_F(StuckHubTest, EndsTheRunEvenIfTheFileCannotBeWritten) {
  std::filesystem::create_directory(file());
  EXPECT_THAT(verdict(), testing::HasSubstr("could not be written"));
}

// Opening a pipe without a reader would never return, so it is refused.
TEST_F(StuckHubTest, EndsTheRunEvenIfAPipeReplacesTheFile) {
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(verdict(), testing::HasSubstr("could not be written"));
}

// The drive itself may hang. It gets a limited time, and then the run ends.
TEST_F(StuckHubTest, EndsTheRunEvenIfTheDriveHangs) {
  std::promise<void> drive;
  const auto done = std::make_shared<std::promise<void>>();
  Hub::Setup with_it = setup();
  with_it.write = [answers = drive.get_future().share(), done](const std::string& path, const std::string& text) {
    answers.wait();
    write_atomically(path, text);
    done->set_value();
  };
  hub_.reset();
  hub_.emplace(memory_, board_, std::move(with_it));
  EXPECT_THAT(verdict(), testing::HasSubstr(file().string() + " could not be written within 0.3 s"));
  EXPECT_FALSE(std::filesystem::exists(file()));
  drive.set_value();
  done->get_future().get();
  EXPECT_TRUE(std::filesystem::exists(file())) << "the state of the ranks was not written";
}

TEST_F(HubTest, KnowsWhetherItsThreadIsActive) {
  EXPECT_TRUE(hub_->is_looking());
  for (int polls = 0; polls < 2000 && hub_->is_looking(); ++polls)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(hub_->is_looking()) << "its thread hangs";
  hub_->look(false);
  EXPECT_TRUE(hub_->is_looking());
}

// A report with some bytes changed: the hub accepts what it can still read, and only the rank's figures change.
TEST_F(HubTest, AcceptsReportsWithAnyContent) {
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
    hub_->receive(changed);
    const pb::Status status = this->status();
    ASSERT_EQ(status.ranks_size(), 1);
    ASSERT_EQ(status.ranks(0).rank(), 0);
    ASSERT_GE(status.ranks(0).place_seconds(), 0);
    if (i % 64 == 0) hub_->look(i % 128 == 0);
  }
  EXPECT_GT(read, 1000);
  EXPECT_EQ(ended_, std::nullopt);
  hub_->receive(report());
  EXPECT_EQ(status().ranks(0).compute_seconds(), 0.005);
}

}  // namespace
}  // namespace strata::launcher::control

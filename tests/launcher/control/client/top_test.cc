#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "launcher/control/client/client.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using testing::Not;

pb::Status status_of(int ranks) {
  pb::Status s;
  s.set_state(pb::TRAINING);
  s.mutable_run()->set_family("gpt2");
  s.set_step(50);
  s.set_max_steps(200);
  s.set_seconds_left(75);
  s.mutable_last()->set_loss(3.25);
  for (int i = 0; i < ranks; ++i) {
    pb::Rank& rank = *s.add_ranks();
    rank.set_rank(i);
    rank.set_node("n" + std::to_string(i / 2 + 1));
    rank.set_compute_seconds(i == 1 ? 0.2 : 0.1);
    rank.set_place("'forward block 3' of step 51");
  }
  s.add_nodes()->set_name("n1");
  pb::Event& event = *s.add_events();
  event.set_text("rank 1 on n1\033[31m is slow\nreally");
  pb::Tier& tier = *s.add_memory();
  tier.set_name("device");
  s.mutable_run()->set_device("cpu");
  tier.set_planned_bytes(1 << 20);
  tier.set_measured_bytes(1 << 19);
  return s;
}

std::vector<pb::Step> steps(int n) {
  std::vector<pb::Step> out(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    out[static_cast<std::size_t>(i)].set_step(i + 1);
    out[static_cast<std::size_t>(i)].set_loss(i == 3 ? std::numeric_limits<double>::quiet_NaN() : 10.0 / (i + 1));
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out{""};
  for (const char c : text)
    if (c == '\n')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

TEST(TopTest, ShowsProgressLossRanksMemoryAndEvents) {
  const std::string text = screen_text(status_of(4), steps(50), {100, 40, true});
  EXPECT_THAT(text, HasSubstr("25.0%  step 50/200, 1m15s left"));
  EXPECT_THAT(text, HasSubstr("loss 3.2500"));
  EXPECT_THAT(text, HasSubstr("loss of steps 1 to 50"));
  EXPECT_THAT(text, HasSubstr("RAM for the model ██████████           512.0 KiB of 1.0 MiB planned"));
  EXPECT_THAT(text, HasSubstr("1 n1       ████████████████████   200.0 ms +100%  'forward block 3' of step 51"));
  EXPECT_THAT(text, HasSubstr("0 n1       ██████████             100.0 ms  +0%"));
  EXPECT_THAT(text, HasSubstr("is slow\\nreally"));
  EXPECT_THAT(text, Not(HasSubstr("\033"))) << "text from others must not control the terminal";
}

TEST(TopTest, StaysWithinAScreenOfAnySize) {
  for (const int columns : {40, 63, 80, 200})
    for (const int rows : {10, 20, 24, 60})
      for (const int ranks : {1, 4, 4096})
        for (const bool unicode : {true, false}) {
          const auto lines = lines_of(screen_text(status_of(ranks), steps(300), {columns, rows, unicode}));
          EXPECT_LE(lines.size(), static_cast<std::size_t>(rows)) << columns << " " << rows << " " << ranks;
          for (const std::string& line : lines) {
            const auto width = std::count_if(line.begin(), line.end(),
                                             [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
            EXPECT_LE(width, columns) << line;
            EXPECT_TRUE(unicode || std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }))
                << line;
          }
        }
}

TEST(TopTest, ShowsTheSlowestRanksIfNotAllFit) {
  const std::string text = screen_text(status_of(4096), {}, {100, 24, true});
  EXPECT_THAT(text, HasSubstr("the slowest"));
  EXPECT_LT(text.find("   1 n1 "), text.find("   0 n1 "));
}

TEST(TopTest, StartsWithoutAnyStep) {
  pb::Status s;
  s.set_state(pb::STARTING);
  s.set_phase("loading weights");
  EXPECT_THAT(screen_text(s, {}, {}), HasSubstr("loading weights"));
}

}  // namespace
}  // namespace strata::launcher::control

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "launcher/screen/progress.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// The text that an activity of this duration writes to a file.
std::string said_after(std::chrono::milliseconds takes, Activity::Unit unit, bool prints = true) {
  std::FILE* file = std::tmpfile();
  {
    Activity activity("reading weights", unit, prints, file);
    activity.show(1, 4096);
    std::this_thread::sleep_for(takes);
    activity.show(1024, 4096, "loss 2.5");
    activity.show(1025, 4096);  // too soon after the line before
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(Activity, QuickWorkPrintsNothing) {
  EXPECT_EQ(said_after(std::chrono::milliseconds(0), Activity::Unit::bytes), "");
}

TEST(Activity, AfterTwoSecondsPrintsTheRemainingTime) {
  const std::chrono::milliseconds kLonger(2100);
  EXPECT_THAT(said_after(kLonger, Activity::Unit::bytes),
              MatchesRegex("strata: reading weights: 1.0 KiB of 4.0 KiB, loss 2.5, [0-9]+s left\n"));
  EXPECT_THAT(said_after(kLonger, Activity::Unit::count),
              MatchesRegex("strata: reading weights: 1,024 of 4,096, loss 2.5, [0-9]+s left\n"));
  EXPECT_EQ(said_after(kLonger, Activity::Unit::count, false), "") << "a silent rank";
}

TEST(Activity, OnATerminalTheLineDisappearsAtTheEnd) {
  int controller = -1, terminal = -1;
  ASSERT_EQ(openpty(&controller, &terminal, nullptr, nullptr, nullptr), 0);
  std::FILE* file = fdopen(terminal, "w");
  {
    Activity activity("hashing", Activity::Unit::count, true, file);
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    activity.show(1, 2);
  }
  std::fflush(file);
  std::string text;
  pollfd ready{controller, POLLIN, 0};
  while (poll(&ready, 1, 500) == 1) {  // it comes in pieces
    char piece[256];
    const ssize_t n = read(controller, piece, sizeof piece);
    ASSERT_GT(n, 0);
    text.append(piece, static_cast<std::size_t>(n));
  }
  EXPECT_THAT(text, testing::StartsWith("\r\033[Khashing: 1 of 2, "));
  EXPECT_TRUE(text.ends_with("\r\033[K"));
  std::fclose(file);
  close(controller);
}

}  // namespace
}  // namespace strata::launcher

#include "launcher/control/watch/background_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

namespace strata::launcher::control {
namespace {

// The first sentence is not taken until the others have been queued, so a tell() that waits would never return.
TEST(MessageThreadTest, DelaysNobodyAndKeepsTheOrder) {
  std::promise<void> read;
  std::vector<std::string> said;
  {
    MessageThread messages([&, wait = read.get_future().share()](const std::string& text) {
      wait.wait();
      said.push_back(text);
    });
    for (const char* text : {"a", "b", "c"}) messages.print(text);
    read.set_value();
  }
  EXPECT_THAT(said, testing::ElementsAre("a", "b", "c"));
}

TEST(MessageThreadTest, DropsMessagesBeyondItsCapacity) {
  std::promise<void> read;
  std::size_t said = 0;
  {
    MessageThread messages([&, wait = read.get_future().share()](const std::string&) {
      wait.wait();
      ++said;
    });
    for (int i = 0; i < 1000; ++i) messages.print("x");
    read.set_value();
  }
  EXPECT_GE(said, 64U);
  EXPECT_LE(said, 65U);
}

}  // namespace
}  // namespace strata::launcher::control

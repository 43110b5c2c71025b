#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "launcher/launch/ranks/rank_output.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A destination that blocks until it is opened. It reports when the first write has reached it.
struct Gate {
  std::promise<void> reached;
  std::promise<void> opened;
  std::shared_future<void> open{opened.get_future()};
  std::string taken;

  static LineWriter::Write write_to(const std::shared_ptr<Gate>& gate) {
    return [gate, first = true](int to, const std::string& text) mutable {
      if (std::exchange(first, false)) gate->reached.set_value();
      gate->open.wait();
      gate->taken += std::to_string(to) + " " + text;
    };
  }
};

TEST(LineWriter, KeepsTheOrder) {
  const auto gate = std::make_shared<Gate>();
  gate->opened.set_value();
  {
    LineWriter writer("a test", Gate::write_to(gate), 1000, 60);
    writer.add(2, "a\n");
    writer.add(1, "b\n");
  }
  EXPECT_EQ(gate->taken, "2 a\n1 b\n");
}

TEST(LineWriter, ABlockedDestinationDelaysNobodyAndLosesTheExcess) {
  const auto gate = std::make_shared<Gate>();
  LineWriter writer("a test", Gate::write_to(gate), 100, 60);
  writer.add(0, "ten bytes\n");
  gate->reached.get_future().wait();
  for (int line = 1; line < 1000; ++line) writer.add(0, "ten bytes\n");
  EXPECT_FALSE(writer.drain(0.01));
  gate->opened.set_value();
  ASSERT_TRUE(writer.drain(60));
  writer.add(0, "again\n");
  ASSERT_TRUE(writer.drain(60));
  // One line is being written, and ten wait.
  EXPECT_THAT(gate->taken, StartsWith("0 ten bytes\n0 ten bytes\n"));
  EXPECT_THAT(gate->taken, HasSubstr(": 989 lines\n0 again\n"));
}

// The end of launch does not wait forever for a folder that hangs.
TEST(LineWriter, ItsEndWaitsForTheGivenTime) {
  const auto gate = std::make_shared<Gate>();
  const auto begin = std::chrono::steady_clock::now();
  {
    LineWriter writer("a test", Gate::write_to(gate), 100, 0.2);
    writer.add(0, "a\n");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 0.2);
  EXPECT_LT(took.count(), 30);
  gate->opened.set_value();
}

}  // namespace
}  // namespace strata::launcher

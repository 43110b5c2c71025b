#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "launcher/measure/memory/memory.h"

namespace strata::launcher {
namespace {

using device::DType;
using runtime::Tier;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Kind = runtime::Recompute::Kind;

MemoryRow row(Kind recompute, int accumulation, std::uint64_t mib, double ms) {
  MemoryRow out{{DType::bf16, recompute, accumulation, Tier::host}, {}};
  out.result = {{mib << 20, 0, 0}, 0, ms, 1, "bits"};
  return out;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// The number that follows `key` in the element whose title has `inside` in it.
double attribute(const std::string& svg, const std::string& inside, const std::string& key) {
  const std::size_t end = svg.find(inside), begin = svg.rfind('<', svg.rfind("<title>", end) - 1),
                    at = svg.find(key, begin);
  return at < end ? std::strtod(svg.c_str() + at + key.size(), nullptr) : -1;
}

TEST(MemoryChartTest, DrawsADotPerMeasuredSetting) {
  MemoryRow large = row(Kind::none, 1, 1, 1);
  large.result.reset();
  const std::string svg = memory_chart({row(Kind::none, 1, 800, 50), row(Kind::none, 2, 400, 100),
                                        row(Kind::sqrt, 1, 600, 75), row(Kind::block, 4, 500, 60), large},
                                       MemoryOf::cpu, "a <model> & more", "a CPU");
  EXPECT_EQ(count(svg, " ms per step</title>"), 4u);
  EXPECT_THAT(svg, AllOf(HasSubstr("a &lt;model&gt; &amp; more"), Not(HasSubstr("<model>")),
                         HasSubstr("prefers-color-scheme: dark"), HasSubstr(">peak of RAM, MiB<"), HasSubstr(">a CPU<"),
                         HasSubstr("fastest: bf16, recompute none, 1 micro-batch, optimizer on host"),
                         HasSubstr("least memory: bf16, recompute none, 2 micro-batches")));
  // Half the memory is at half the width, and twice the time at twice the height.
  const double left = 84, bottom = 496;
  const std::string first = "bf16, recompute none, 1 micro-batch, optimizer on host: 800.0 MiB, 50.0 ms";
  const std::string second = "bf16, recompute none, 2 micro-batches, optimizer on host: 400.0 MiB, 100.0 ms";
  EXPECT_NEAR(attribute(svg, first, "cx=\"") - left, 2 * (attribute(svg, second, "cx=\"") - left), 0.2);
  EXPECT_NEAR(2 * (bottom - attribute(svg, first, "cy=\"")), bottom - attribute(svg, second, "cy=\""), 0.2);
  EXPECT_GT(attribute(svg, first, " r=\""), attribute(svg, second, " r=\""));
  EXPECT_EQ(count(svg, "<rect"), 2u) << "one in the picture, one in the legend";
  EXPECT_THAT(svg, Not(HasSubstr(">fp32</text>"))) << "only dtypes in use";
}

TEST(MemoryChartTest, HandlesNoMeasurements) {
  EXPECT_THAT(memory_chart({}, MemoryOf::gpu, "t", ""),
              AllOf(HasSubstr("no setting ran"), testing::EndsWith("</svg>\n")));
}

}  // namespace
}  // namespace strata::launcher

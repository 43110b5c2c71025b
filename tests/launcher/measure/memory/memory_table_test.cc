#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

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

constexpr std::uint64_t kMiB = 1 << 20;

MemoryRow table_row(DType precision, int accumulation, Tier optimizer, const std::string& bits) {
  MemoryRow out{{precision, Kind::sqrt, accumulation, optimizer}, {}};
  out.planned[0].peak = 300 * kMiB;
  out.planned[1].peak = 40 * kMiB;
  if (!bits.empty()) out.result = {{299 * kMiB, 39 * kMiB, 5}, 420 * kMiB, 12.25, 3.5, bits};
  return out;
}

TEST(MemoryTableTest, ALineShowsPlannedAndMeasuredMemory) {
  const MemoryRow ran = table_row(DType::bf16, 2, Tier::host, "0123456789abcdef");
  EXPECT_EQ(
      memory_line(ran, MemoryOf::cpu),
      "bf16      sqrt           2  host        340.0 MiB  338.0 MiB  420.0 MiB       12.2   3.500000  01234567\n");
  EXPECT_THAT(memory_line(ran, MemoryOf::gpu), HasSubstr("  300.0 MiB  299.0 MiB  "))
      << "the host's memory is not short";
  EXPECT_EQ(memory_header(MemoryOf::cpu).size() - memory_header(MemoryOf::cpu).find('\n') - 1,
            memory_line(ran, MemoryOf::cpu).size() - 4)
      << "columns align with their names";
  MemoryRow large = table_row(DType::fp32, 1, Tier::device, "");
  large.fits = false;
  EXPECT_THAT(memory_line(large, MemoryOf::cpu), AllOf(HasSubstr("340.0 MiB"), HasSubstr("does not fit\n")));
  MemoryRow failed = table_row(DType::fp32, 1, Tier::device, "");
  failed.failure = "strata: the loss is not finite";
  EXPECT_THAT(memory_line(failed, MemoryOf::cpu), HasSubstr("  strata: the loss is not finite\n"));
}

TEST(MemoryTableTest, ComparesBitsWithinAPrecisionAndMicroBatch) {
  std::vector<MemoryRow> rows = {table_row(DType::bf16, 1, Tier::device, "a"),
                                 table_row(DType::bf16, 1, Tier::host, "a"), table_row(DType::bf16, 2, Tier::host, "b"),
                                 table_row(DType::fp32, 1, Tier::device, "c"),
                                 table_row(DType::fp32, 1, Tier::host, "")};
  EXPECT_TRUE(differing_rows(rows).empty());
  EXPECT_THAT(same_bits_text(rows), AllOf(HasSubstr("of 4 settings in 3 groups"), HasSubstr("the same in each group")));
  rows[1].result->bits = "d2";
  ASSERT_EQ(differing_rows(rows).size(), 1u);
  EXPECT_EQ(differing_rows(rows)[0], &rows[1]);
  EXPECT_THAT(same_bits_text(rows),
              AllOf(HasSubstr("1 differ from the first of their group\n  bf16      sqrt           1  host      d2\n"),
                    Not(HasSubstr("the same in each group"))));
  EXPECT_THAT(same_bits_text({}), HasSubstr("no setting ran"));
}

TEST(MemoryTableTest, Json) {
  MemoryRow large = table_row(DType::fp32, 1, Tier::device, "");
  large.fits = false;
  const std::string text =
      memory_rows_json({table_row(DType::bf16, 2, Tier::nvme, "0123456789abcdef"), large}, MemoryOf::cpu);
  simdjson::dom::parser parser;
  const simdjson::dom::element all = parser.parse(text);
  const auto first = all.at(0), second = all.at(1);
  EXPECT_EQ(std::string_view(first["precision"]), "bf16");
  EXPECT_EQ(std::string_view(first["optimizer"]), "nvme");
  EXPECT_EQ(std::uint64_t(first["planned_bytes"]), 340 * kMiB);
  EXPECT_EQ(std::uint64_t(first["measured_bytes"]), 338 * kMiB);
  EXPECT_EQ(std::uint64_t(first["measured_nvme_bytes"]), 5u);
  EXPECT_EQ(std::uint64_t(first["process_bytes"]), 420 * kMiB);
  EXPECT_EQ(std::string_view(first["bits"]), "0123456789abcdef");
  EXPECT_FALSE(bool(second["fits"]));
  EXPECT_NE(second["step_ms"].error(), simdjson::SUCCESS);
}

}  // namespace
}  // namespace strata::launcher

#include "text/chat/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TableTest, FieldsFollowRfc4180) {
  EXPECT_THAT(fields_of("a,b,,c\r\n", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(fields_of("\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"", ','),
              ElementsAre("a,b", "say \"hi\"", "two\nlines"));
  EXPECT_THAT(fields_of("a\tb c\t", '\t'), ElementsAre("a", "b c", ""));
  EXPECT_THAT(fields_of("5\" disk,x", ','), ElementsAre("5\" disk", "x"));
  EXPECT_THAT(fields_of("\"\"", ','), ElementsAre(""));
  EXPECT_THAT(fields_of("\"\"\"\"", ','), ElementsAre("\""));
  EXPECT_THAT(fields_of("", ','), ElementsAre(""));
}

TEST(TableTest, AQuotedLineBreakDoesNotEndARecord) {
  EXPECT_EQ(record_end("a,\"b\nc\"\nd", 0, ','), 8u);
  EXPECT_EQ(record_end("a,\"b\n", 0, ','), std::string_view::npos);
  EXPECT_EQ(record_end("x\na\n", 2, ','), 4u);
  EXPECT_EQ(record_end("\"a\"\"\n\"\nb", 0, ','), 7u);
}

TEST(TableTest, AQuoteInsideAFieldIsLiteral) {
  EXPECT_EQ(record_end("5\" disk,x\ny", 0, ','), 10u);
  EXPECT_EQ(record_end("a,\"\"\n", 0, ','), 5u);
  EXPECT_EQ(record_end("a\t\"\n\"\nb", 0, '\t'), 6u);
  EXPECT_EQ(record_end("a\t\"\n\"\nb", 0, ','), 4u);
}

std::string fault_of(std::string_view record) {
  try {
    (void)fields_of(record, ',');
  } catch (const TableFault& fault) {
    return fault.message;
  }
  return "none";
}

TEST(TableTest, RefusesInvalidRecords) {
  EXPECT_THAT(fault_of("a,\"open"), HasSubstr("field 2 begins with a quote that is never closed"));
  EXPECT_THAT(fault_of("\"open\"\""), HasSubstr("field 1"));
  EXPECT_THAT(fault_of("\"a\" b,c"), HasSubstr("after the quote that closes field 1"));
  EXPECT_THAT(fault_of("\"\"a,c"), HasSubstr("after the quote that closes field 1"));
  EXPECT_THAT(fault_of("a,b\rc,d"), HasSubstr("there is a carriage return without a line feed"));
  EXPECT_EQ(fault_of("a,\"b\rc\",d\r\n"), "none");
}

}  // namespace
}  // namespace strata::text

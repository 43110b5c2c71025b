#include "text/chat/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::text {
namespace {

using testing::ElementsAre;

TEST(TableTest, FieldsAreThoseOfRfc4180) {
  EXPECT_THAT(fields_of("a,b,,c\r\n", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(fields_of("\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"", ','),
              ElementsAre("a,b", "say \"hi\"", "two\nlines"));
  EXPECT_THAT(fields_of("a\tb c\t", '\t'), ElementsAre("a", "b c", ""));
  EXPECT_THAT(fields_of("5\" disk,x", ','), ElementsAre("5\" disk", "x"));
  EXPECT_THAT(fields_of("\"open", ','), ElementsAre("open"));
  EXPECT_THAT(fields_of("\"\"", ','), ElementsAre(""));
  EXPECT_THAT(fields_of("\"\"\"\"", ','), ElementsAre("\""));
  EXPECT_THAT(fields_of("", ','), ElementsAre(""));
}

TEST(TableTest, ALineBreakInQuotesEndsNoRecord) {
  EXPECT_EQ(record_end("a,\"b\nc\"\nd", 0), 8u);
  EXPECT_EQ(record_end("a,\"b\n", 0), std::string_view::npos);
  EXPECT_EQ(record_end("x\na\n", 2), 4u);
  EXPECT_EQ(record_end("\"a\"\"\n\"\nb", 0), 7u);
}

}  // namespace
}  // namespace strata::text

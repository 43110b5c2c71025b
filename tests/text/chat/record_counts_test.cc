#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat/part_tokenizer.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RecordCounts, AddUpAndAreReportedInSentences) {
  RecordCounts all, part;
  EXPECT_THAT(all.notes("t", 4), IsEmpty());
  part.tools_left_out = part.decoded_calls = part.null_arguments = part.written_differently = part.open_ends =
      part.unlabelled = 1;
  part.unread["id"] = part.unread_in_turns["name"] = part.roles_left_out["developer"] = 1;
  part.roles = {"user"};
  all.add(part);
  all.add(part);
  EXPECT_EQ(all.unlabelled, 2u);
  EXPECT_THAT(all.roles, ElementsAre("user"));
  EXPECT_THAT(
      all.notes("t.jinja", 4),
      ElementsAre("fields that are not read: id (2 records)",
                  "fields of turns that t.jinja does not write: name (2 records)",
                  "roles whose turns t.jinja does not write: developer (2 turns)",
                  HasSubstr("2 of 4 documents have tools or tool calls, which t.jinja does not write"),
                  HasSubstr("2 of 4 documents have tool calls whose arguments are JSON in a text"),
                  AllOf(HasSubstr("2 of 4 documents have null arguments"), HasSubstr("jq -c 'del(.. | nulls)'")),
                  HasSubstr("2 of 4 documents have a last answer after which t.jinja writes nothing"),
                  AllOf(HasSubstr("2 answers are trained on as t.jinja writes them"), HasSubstr("--train-on last"))));
}

}  // namespace
}  // namespace strata::text

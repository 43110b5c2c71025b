#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "text/chat/record.h"
#include "text/json/json_value.h"
#include "text/template/values/json_text.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A turn with these additional fields.
jinja::Value turn(const std::string& more) {
  return parse_json(R"({"role": "assistant", "content": "a", )" + more + "}");
}
std::optional<bool> said(const std::string& more) {
  return trained(turn(more), 3);
}
std::string mask_fault(const std::string& more) {
  try {
    (void)said(more);
  } catch (const RecordFault& found) {
    return found.message;
  }
  return "no fault";
}

TEST(TurnMaskTest, AcceptsOtherTrainersNames) {
  for (const char* field : {"train", "training", "trainable", "train_on_turn", "loss", "loss_mask", "loss_weight",
                            "loss_scale", "weight"}) {
    SCOPED_TRACE(field);
    const std::string name = "\"" + std::string(field) + "\": ";
    EXPECT_TRUE(is_turn_mask(field));
    EXPECT_EQ(said(name + "false"), false);
    EXPECT_EQ(said(name + "true"), true);
    EXPECT_EQ(said(name + "0"), false);
    EXPECT_EQ(said(name + "1.0"), true);
    EXPECT_EQ(said(name + "null"), std::nullopt);
    EXPECT_THAT(mask_fault(name + "0.5"), AllOf(HasSubstr("turn 3"), HasSubstr(field), HasSubstr("found 0.5")));
    EXPECT_THAT(mask_fault(name + "\"false\""), HasSubstr("expected true, false, 0 or 1"));
  }
  EXPECT_EQ(said("\"masked\": true"), false) << "torchtune's is the other way round";
  EXPECT_EQ(said("\"name\": \"x\""), std::nullopt);
  EXPECT_FALSE(is_turn_mask("name"));
}

TEST(TurnMaskTest, SeveralMasksMustAgree) {
  EXPECT_EQ(said("\"train\": false, \"weight\": 0, \"masked\": true"), false);
  EXPECT_THAT(mask_fault("\"weight\": 1, \"train\": false"),
              HasSubstr("\"weight\" and \"train\" of turn 3 contradict"));
}

TEST(TurnMaskTest, RefusesMasksOfParts) {
  EXPECT_THAT(mask_fault(R"("train_detail": [{"begin_offset": 0, "end_offset": 8, "train": false}])"),
              AllOf(HasSubstr("turn 3 has \"train_detail\""), HasSubstr("\"train\" to true or false")));
  EXPECT_EQ(said("\"train_detail\": null, \"training_detail\": []"), std::nullopt);
}

// Tests records of each format. The template does not see the masks.
TEST(TurnMaskTest, ReadsMasksOfEveryFormat) {
  const auto of = [](const std::string& json, DataFormat format) { return conversation_of(parse_json(json), format); };
  const auto messages = of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "wrong",
      "loss": false}, {"role": "assistant", "content": "a", "loss": true}]})",
                           DataFormat::chat);
  EXPECT_THAT(messages.trained, ElementsAre(std::nullopt, std::optional(false), std::optional(true)));
  EXPECT_EQ(jinja::json_text(messages.messages.items()[1], {}), R"({"role": "assistant", "content": "wrong"})");
  const auto sharegpt = of(R"({"conversations": [{"from": "human", "value": "q", "train": true},
      {"from": "gpt", "value": "a", "loss": false, "score": 2}]})",
                           DataFormat::sharegpt);
  EXPECT_THAT(sharegpt.trained, ElementsAre(std::optional(true), std::optional(false)));
  EXPECT_THAT(sharegpt.unread_turn_fields, ElementsAre("score"));
  EXPECT_THROW(of(R"({"conversations": [{"from": "gpt", "value": "a", "train_detail": [{}]}]})", DataFormat::sharegpt),
               RecordFault);
}

}  // namespace
}  // namespace strata::text

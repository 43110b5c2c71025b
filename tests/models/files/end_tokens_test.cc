#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/files/config.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EndTokensTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& value) const {
    folder_.write(name, R"({"eos_token_id":)" + value + "}");
  }
  std::vector<std::uint32_t> found() const { return end_tokens(folder_.path()); }
  tests::ScratchFolder folder_;
};

TEST_F(EndTokensTest, AcceptsANumberOrAList) {
  write("config.json", "7");
  EXPECT_THAT(found(), ElementsAre(7));
  write("config.json", "null");
  EXPECT_THAT(found(), ElementsAre());
  write("config.json", "[7, 4294967295]");
  EXPECT_THAT(found(), ElementsAre(7, 4294967295));
}

TEST_F(EndTokensTest, GenerationConfigComesFirst) {
  write("config.json", "7");
  write("generation_config.json", "[8]");
  EXPECT_THAT(found(), ElementsAre(8));
  write("generation_config.json", "[]");
  EXPECT_THAT(found(), ElementsAre()) << "an empty list names none";
  write("generation_config.json", "null");
  EXPECT_THAT(found(), ElementsAre(7));
}

TEST_F(EndTokensTest, TakesADescriptionForConfigJson) {
  const Config description = Config::parse(R"({"eos_token_id":9})", "description");
  EXPECT_THAT(end_tokens(folder_.path(), description), ElementsAre(9)) << "config.json is not read";
  write("config.json", "7");
  EXPECT_THAT(end_tokens(folder_.path(), description), ElementsAre(9));
  write("generation_config.json", "[8]");
  EXPECT_THAT(end_tokens(folder_.path(), description), ElementsAre(8));
  write("generation_config.json", "null");
  EXPECT_THAT(end_tokens(folder_.path(), description), ElementsAre(9));
}

TEST_F(EndTokensTest, RefusesOtherTypes) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    for (const char* value : {"[[1]]", "[1,[2]]", "\"1\"", "1.5", "true", "-1", "[4294967296]", "{}", R"({"a":1})"}) {
      SCOPED_TRACE(value);
      write("config.json", "7");
      write(name, value);
      EXPECT_FAILURE(found(), Exit::corrupt, AllOf(HasSubstr("eos_token_id"), HasSubstr(name), HasSubstr("expected")));
    }
  }
}

}  // namespace
}  // namespace strata::models

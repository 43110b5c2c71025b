#include "runtime/recipe/names_elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "runtime/recipe/keys.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(NamesElsewhere, EachStandsForAKeyThatThereIsAndIsNoneItself) {
  std::set<std::string_view> keys, names;
  for (const RecipeKey& key : recipe_keys()) keys.insert(key.name);
  for (const NameElsewhere& other : names_elsewhere()) {
    EXPECT_TRUE(names.insert(other.name).second) << other.name << " stands twice";
    EXPECT_TRUE(other.key.empty() ? !other.note.empty() : keys.contains(other.key)) << other.name;
    for (const std::string_view key : keys)
      EXPECT_NE(other.name, key.substr(key.rfind('.') + 1)) << "find_elsewhere is asked of unknown keys alone";
  }
}

TEST(NamesElsewhere, AreFoundInAnySectionAndByTheirOwn) {
  for (const char* key : {"lr", "optimizer.lr", "training.args.lr", "lr.x"}) {
    const NameElsewhere* found = find_elsewhere(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->key, "optimizer.learning_rate") << key;
  }
  EXPECT_EQ(find_elsewhere("offload_optimizer.device")->key, "zero.optimizer");
  for (const char* key : {"", ".", "x", "clr", "lrs", "lr_", "a..b"}) EXPECT_EQ(find_elsewhere(key), nullptr) << key;
}

TEST(NamesElsewhere, AnUnknownKeySaysWhatItIsHere) {
  EXPECT_FAILURE(recipe_with({"training.per_device_train_batch_size=4"}), Exit::usage,
                 StartsWith("unknown key training.per_device_train_batch_size (--set): here it is "
                            "training.micro_batch_size, in sequences of data.seq_len tokens"));
  EXPECT_FAILURE(recipe_with({"optimizer.lr=1"}), Exit::usage, HasSubstr("here it is optimizer.learning_rate ("));
  EXPECT_FAILURE(recipe_with({"train_on_inputs=false"}), Exit::usage,
                 HasSubstr("(--set): use strata tokenize --train-on assistant"));
}

TEST(NamesElsewhere, AreListedByAPartOfTheirNames) {
  EXPECT_EQ(keys_about("save_total"), "save_total_limit, a name of other programs\n    here it is checkpoint.keep\n");
  EXPECT_THAT(keys_about("micro_batch_size"),
              AllOf(HasSubstr("training.micro_batch_size = 1\n"), HasSubstr("train_micro_batch_size_per_gpu, a name"),
                    Not(HasSubstr("per_device_train"))));
}

}  // namespace
}  // namespace strata::runtime

#include "runtime/recipe/names_elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/recipe/keys.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/source_dir.h"

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

TEST(NamesElsewhere, CaseAndDashesMakeNoDifference) {
  for (const char* name :
       {"WarmupLR", "warmuplr", "--train-iters", "fsdp.FULL_SHARD", "zero_optimization.Overlap_Comm"})
    EXPECT_NE(find_elsewhere(std::string_view(name).starts_with("--") ? name + 2 : name), nullptr) << name;
  EXPECT_THAT(keys_about("OVERLAP-COMM"), HasSubstr("overlap_comm, a name of other programs"));
  EXPECT_THAT(keys_about("zero_optimization.sub_group_size"), HasSubstr("2 Mi elements"));
  EXPECT_THAT(keys_about("optimizer.type"), HasSubstr("here it is optimizer.name"));
  EXPECT_THAT(keys_about("fp16"), AllOf(HasSubstr("fp16.initial_scale = "), HasSubstr("training.precision, \"fp16\"")));
}

TEST(NamesElsewhere, ASectionHereIsNotTakenForTheirs) {
  EXPECT_FAILURE(recipe_with({"fp16.enabled=true"}), Exit::usage, HasSubstr("here it is training.precision"));
  EXPECT_FAILURE(recipe_with({"fp16.hysteresis=2"}), Exit::usage, HasSubstr("halves with every overflow"));
  EXPECT_FAILURE(recipe_with({"fp16.initial_scal=2"}), Exit::usage,
                 HasSubstr("nearest known key is fp16.initial_scale"));
  EXPECT_FAILURE(recipe_with({"fp16=true"}), Exit::usage, HasSubstr("here it is training.precision"));
}

// Text between back quotes, in order.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find('`', at)) != std::string::npos;) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    out.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return out;
}

// docs/coming-from.md and what the program answers are one: each name in a first column of its tables is known, and the
// answer is among the keys that stand beside it.
TEST(NamesElsewhere, ThePageSaysWhatTheProgramSays) {
  std::set<std::string, std::less<>> keys, parts;
  for (const RecipeKey& key : recipe_keys()) {
    keys.insert(key.name);
    parts.insert(key.name.substr(key.name.rfind('.') + 1));
  }
  // Values of another key in the same cell, and what is no setting.
  const std::set<std::string> no_names = {"AdamW", "Lion", "SGD", "Adam", "AutoModelForMaskedLM"};
  std::ifstream file(tests::source_dir() / "docs/coming-from.md");
  ASSERT_TRUE(file);
  std::size_t names = 0;
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) section = line;
    if (!line.starts_with("| ") || section.starts_with("## A Trainer") || line.starts_with("| stage")) continue;
    const std::size_t middle = line.find(" | ");
    ASSERT_NE(middle, std::string::npos) << line;
    std::set<std::string, std::less<>> beside;
    for (const std::string& text : quoted(line.substr(middle)))
      if (keys.contains(text.substr(0, text.find_first_of(" ="))))
        beside.insert(text.substr(0, text.find_first_of(" =")));
    for (std::string name : quoted(line.substr(0, middle))) {
      name = name.substr(0, name.find_first_of("(=:, "));
      if (name.ends_with(".*")) name.resize(name.size() - 2);
      if (name.ends_with(".py")) name.resize(name.size() - 3);
      for (std::size_t star; (star = name.find('*')) != std::string::npos;) name.erase(star);
      if (no_names.contains(name) || name.ends_with("_") || name.find("_*") != name.npos) continue;
      ++names;
      const NameElsewhere* found = find_elsewhere(name);
      if (!found) {
        EXPECT_TRUE(parts.contains(name.substr(name.rfind('.') + 1))) << "strata keys " << name << ", as in: " << line;
        continue;
      }
      if (!beside.empty() && !found->key.empty()) {
        EXPECT_TRUE(beside.contains(found->key)) << name << " is " << found->key << ", but: " << line;
      }
    }
  }
  EXPECT_GT(names, 100u);
}

}  // namespace
}  // namespace strata::runtime

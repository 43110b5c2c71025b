#include "runtime/checkpoint/export/model_place.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

class ModelPlaces : public testing::Test {
 protected:
  ModelPlaces() { std::filesystem::create_directories(checkpoint_); }
  ModelPlace place(const char* model) const { return place_of(model, manifest_, checkpoint_); }

  tests::ScratchFolder folder_;
  std::filesystem::path start_ = folder_.path() / "start", checkpoint_ = start_ / "runs/ck/step-1";
  Manifest manifest_;
};

TEST_F(ModelPlaces, UseAnAbsolutePath) {
  EXPECT_EQ(place("/models/small").path, "/models/small");
  EXPECT_FALSE(place("/models/small").guessed);
}

TEST_F(ModelPlaces, DeriveTheStartFolderFromARelativeCheckpointDir) {
  std::filesystem::create_directories(start_ / "hf");
  manifest_.recipe["checkpoint.dir"] = "\"runs/ck\"";
  EXPECT_EQ(place("hf").path, start_ / "hf");
  EXPECT_FALSE(place("hf").guessed);
  manifest_.recipe["checkpoint.dir"] = "\"elsewhere/ck\"";  // the checkpoints have moved
  EXPECT_NE(place("hf").path, start_ / "hf");
}

TEST_F(ModelPlaces, UseTheCheckpointFolderIfItIsTheStartFolder) {
  const std::filesystem::path hf = start_ / "runs/ck/hf";
  std::filesystem::create_directories(hf);
  for (const char* dir : {"\".\"", "\"./\"", "\"a/..\""}) {
    manifest_.recipe["checkpoint.dir"] = dir;
    EXPECT_EQ(place("hf").path, hf) << dir;
    EXPECT_FALSE(place("hf").guessed) << dir;
  }
}

TEST_F(ModelPlaces, OtherwiseGuessAFolderNextToTheCheckpoints) {
  std::filesystem::create_directories(start_ / "runs/hf");
  EXPECT_EQ(place("hf").path, start_ / "runs/hf");
  EXPECT_TRUE(place("hf").guessed);
}

TEST_F(ModelPlaces, NameTheOriginalPlaceOfAMissingModel) {
  manifest_.recipe["checkpoint.dir"] = "\"runs/ck\"";
  EXPECT_EQ(place("../hf").path, folder_.path() / "hf");
  EXPECT_FALSE(place("../hf").guessed);
}

TEST_F(ModelPlaces, StoredPathsAreText) {
  manifest_.recipe = {{"model.path", "\"a b\""}, {"data.mask", "none"}};
  EXPECT_EQ(stored_path(manifest_, "model.path"), "a b");
  EXPECT_EQ(stored_path(manifest_, "data.mask"), "");
  EXPECT_EQ(stored_path(manifest_, "data.train"), "");
}

}  // namespace
}  // namespace strata::runtime

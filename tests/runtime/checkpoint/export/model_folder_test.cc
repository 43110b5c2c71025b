#include "runtime/checkpoint/export/model_folder.h"

#include <gmock/gmock.h>

#include "runtime/checkpoint/export/adapter_folder.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(ModelFolderTest, UsesTheNewestCompleteCheckpoint) {
  const SavedRun run;
  run.run(2, run.sets(2, {"zero.stage=3", "checkpoint.keep=9"}), 3, {1, 2, 3});
  const auto chosen = [&] { return ModelFolder(run.checkpoints()).path().filename().string(); };
  EXPECT_EQ(chosen(), "step-00000003");
  fs::resize_file(run.checkpoints() / "step-00000003/rank-00001-of-00002.safetensors", 100);
  EXPECT_EQ(chosen(), "step-00000002");
  fs::remove(run.checkpoints() / "step-00000002/manifest.json");
  fs::create_directory(run.checkpoints() / "step-00000002/manifest.json");
  EXPECT_EQ(chosen(), "step-00000001");
  fs::remove(run.checkpoints() / "step-00000001/rank-00000-of-00002.safetensors");
  EXPECT_FAILURE(ModelFolder(run.checkpoints()), Exit::corrupt, HasSubstr("none of its 3 checkpoints is complete"));
  fs::remove_all(run.checkpoints() / "step-00000002");
  fs::remove_all(run.checkpoints() / "step-00000003");
  EXPECT_FAILURE(ModelFolder(run.checkpoints()), Exit::corrupt, HasSubstr(": its only checkpoint is not complete: "));
}

TEST(ModelFolderTest, NamesTheKindOfOtherFolders) {
  const tests::ScratchFolder folder;
  const auto refused = [&](const char* name, const std::string& words) {
    EXPECT_FAILURE(ModelFolder(folder.path() / name), Exit::usage, HasSubstr(words));
  };
  folder.write("adapter/adapter_config.json", "{}");
  folder.write("adapter/adapter_model.safetensors", "");
  refused("adapter", "adapter holds an adapter (LoRA) but names no base_model_name_or_path");
  const auto of = [&](const std::string& base) {
    folder.write("adapter/adapter_config.json", R"({"peft_type": "LORA", "target_modules": ["q_proj"], )"
                                                R"("base_model_name_or_path": ")" +
                                                    base + "\"}");
  };
  of("HuggingFaceTB/SmolLM2-135M");
  refused("adapter",
          "(hf download HuggingFaceTB/SmolLM2-135M --local-dir HuggingFaceTB/SmolLM2-135M): write the folder");
  of("/gone/model");
  refused("adapter",
          "of /gone/model, which is not a folder here: write the folder of that model to base_model_name_or_p");
  fs::create_directory(folder.path() / "cache");
  fs::create_symlink("../../blobs/0123abcd", folder.path() / "cache/config.json");
  refused("cache", "config.json is a link to ../../blobs/0123abcd, which does not exist");
  fs::create_symlink("snapshots/gone", folder.path() / "link");
  refused("link", "link is a link to snapshots/gone, which does not exist");
  refused("none", "there is no folder");
  folder.write("q4.gguf", "GGUF");
  refused("q4.gguf", "in llama.cpp's GGUF format");
  folder.write("lfs/config.json",
               "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n");
  EXPECT_FAILURE((void)ModelFolder(folder.path() / "lfs").config(), Exit::usage, HasSubstr("is a Git LFS pointer"));
}

// Nothing is downloaded: a name on the Hub is not a folder until somebody creates one.
TEST(ModelFolderTest, AMissingFolderGivesTheDownloadCommand) {
  const SavedRun run;
  EXPECT_FAILURE((void)ModelFolder("HuggingFaceTB/SmolLM2-135M"), Exit::usage,
                 testing::AllOf(HasSubstr("there is no folder HuggingFaceTB/SmolLM2-135M"),
                                HasSubstr("hf download HuggingFaceTB/SmolLM2-135M --local-dir Hugg")));
  EXPECT_FAILURE((void)ModelFolder("no-gpt2"), Exit::usage, HasSubstr("hf download no-gpt2 --local-dir no-gpt2"));
  const fs::path gone = run.folder().path() / "gone";
  EXPECT_FAILURE((void)ModelFolder(gone), Exit::usage,
                 testing::AllOf(HasSubstr("there is no folder " + gone.string()),
                                HasSubstr("hf download ORGANISATION/MODEL --local-dir " + gone.string())));
  run.folder().write("empty/notes.txt", "");
  EXPECT_FAILURE((void)ModelFolder(run.folder().path() / "empty"), Exit::usage, HasSubstr("holds no model"));
}

// Trainer, TRL and axolotl write checkpoint-N, and peft a folder for each adapter with a name of its own.
TEST(ModelFolderTest, ProposesTheFolderInsideATrainersOutput) {
  const tests::ScratchFolder folder;
  const fs::path output = folder.path() / "output";
  const auto refused = [&](const std::string& end) {
    EXPECT_FAILURE((void)ModelFolder(output), Exit::usage, testing::EndsWith(end));
  };
  const auto of_adapter = [&](const std::string& end) {
    EXPECT_FAILURE(require_peft_folder(output), Exit::usage, testing::EndsWith(end));
  };
  const std::string other = (output / "other").string(), nine = (output / "checkpoint-9").string(),
                    ten = (output / "checkpoint-10").string(), holds = " holds one: give that";
  folder.write("output/runs/events", "");
  refused("or a folder of checkpoints");
  of_adapter("takes a folder to which peft saved an adapter");
  folder.write("output/other/adapter_config.json", "{}");
  refused("output holds no model, but " + other + holds);
  of_adapter("output holds no adapter_config.json, but " + other + holds);
  folder.write("output/another/adapter_config.json", "{}");
  of_adapter("takes a folder to which peft saved an adapter");
  folder.write("output/checkpoint-9/adapter_config.json", "{}");
  folder.write("output/checkpoint-10/config.json", "{}");
  folder.write("output/checkpoint-best/config.json", "{}");
  folder.write("output/checkpoint-11/optimizer.pt", "");
  refused(ten + holds);
  of_adapter(nine + holds);
}

// A folder's newest checkpoint is read completely, even moments that the model does not need. A checkpoint that is
// named itself is not.
TEST(ModelFolderTest, AllRanksUseTheCheckpointThatATrainingWouldResume) {
  const SavedRun run;
  run.run(2, run.sets(2, {"zero.stage=3"}), 3, {2, 3});
  const auto newest = run.checkpoints() / "step-00000003";
  std::fstream(newest / "rank-00001-of-00002.safetensors", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(-1, std::ios::end)
      .put('\x7f');
  comm::run_threads(3, [&](comm::World& world) {
    std::vector<std::string> notes;
    const auto note = [&](const std::string& text) { notes.push_back(text); };
    EXPECT_EQ(agree_on_model(run.checkpoints(), 1, world, note).path(), run.checkpoints() / "step-00000002");
    EXPECT_EQ(notes.size(), world.rank() == 0 ? 1u : 0u);
    EXPECT_EQ(agree_on_model(newest, 1, world, note).path(), newest);
  });
}

// If a run began with another run's checkpoint, its tokenizer is in the directory from which the first run started.
TEST(ModelFolderTest, FindsTheDirectoryThroughAnEarlierRun) {
  const SavedRun run;
  run.run(1, run.sets(1), 2, {1, 2});
  const fs::path first = run.checkpoints() / "step-00000001", second = run.checkpoints() / "step-00000002";
  const auto began_with = [](const fs::path& checkpoint, const fs::path& model) {
    Manifest manifest = read_manifest(checkpoint);
    manifest.recipe["model.path"] = "\"" + model.string() + "\"";
    std::ofstream(checkpoint / kManifestName) << to_json(manifest);
  };
  EXPECT_EQ(ModelFolder(second).hugging_face(), std::nullopt) << "of a preset";
  run.folder().write("hf/config.json", "{}");
  began_with(first, run.folder().path() / "hf");
  began_with(second, first);
  EXPECT_EQ(ModelFolder(second).hugging_face(), run.folder().path() / "hf");
  began_with(second, second);
  EXPECT_EQ(ModelFolder(second).hugging_face(), std::nullopt) << "of itself";
  began_with(second, run.folder().path() / "gone");
  EXPECT_EQ(ModelFolder(second).hugging_face(), std::nullopt);
}

// In older manifests paths are relative to the folder in which the run was started, which may not be the current one.
TEST(ModelFolderTest, ResolvesRelativePathsOfOlderManifests) {
  const SavedRun run;
  run.run(1, run.sets(1), 1, {1});
  const fs::path checkpoint = run.checkpoints() / "step-00000001";
  const auto written = [&](const char* model, const char* dir) {
    Manifest manifest = read_manifest(checkpoint);
    manifest.recipe["model.path"] = model;
    if (dir) manifest.recipe["checkpoint.dir"] = dir;
    manifest.recipe["model.init"] = "\"pretrained\"";
    manifest.base_path = "hf";
    manifest.base_hash = "0";
    std::ofstream(checkpoint / kManifestName) << to_json(manifest);
    return ModelFolder(checkpoint);
  };
  run.folder().write("hf/config.json", "{}");
  const fs::path hf = run.folder().path() / "hf";
  const ModelFolder guessed = written("\"hf\"", nullptr);
  EXPECT_EQ(guessed.hugging_face(), hf);
  const std::string note = guessed.base_note();
  EXPECT_THAT(note,
              testing::EndsWith(
                  "step-00000001 names its run's initial model as hf, relative to a folder that it does not record: " +
                  hf.string() + " is read"));
  const ModelFolder known = written("\"hf\"", "\"./checkpoints/\"");
  EXPECT_EQ(known.base(), hf);
  known.require_base();
  EXPECT_EQ(known.base_note(), "");
  EXPECT_EQ(written("\"hf\"", "\"other\"").base_note(), note);
  EXPECT_EQ(written("none", nullptr).base_note(), "");
  fs::remove_all(hf);
  const ModelFolder gone = written("\"hf\"", "\"checkpoints\"");
  EXPECT_EQ(gone.hugging_face(), std::nullopt);
  EXPECT_EQ(gone.base(), hf) << "where it was";
  EXPECT_FAILURE(gone.require_base(), Exit::usage,
                 HasSubstr("its base model is no longer at " + hf.string() + ": put the model back there"));
}

}  // namespace
}  // namespace strata::runtime

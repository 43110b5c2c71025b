// A disk fails at any operation, a bit flips in any file, or a folder is in use. The older or the newer checkpoint
// loads, and a damaged one never loads silently.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <random>

#include "tests/dist/tiny_run.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using runtime::Checkpoint;
using runtime::SavedRun;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A disk whose n-th operation fails. A failing write writes half of its bytes.
class FailingDisk final : public runtime::FileSystem {
 public:
  FailingDisk(int fails, int reason) : left_(fails), reason_(reason) {}
  bool failed() const { return left_ < 0; }

  std::unique_ptr<runtime::WritableFile> create(const fs::path& path) override {
    step(path);
    return std::make_unique<File>(*this, path, disk_->create(path));
  }
  void make_folder(const fs::path& path) override { (step(path), disk_->make_folder(path)); }
  void sync_folder(const fs::path& path) override { (step(path), disk_->sync_folder(path)); }
  void rename(const fs::path& from, const fs::path& to) override { (step(to), disk_->rename(from, to)); }
  void remove_file(const fs::path& path) override { (step(path), disk_->remove_file(path)); }
  void remove_folder(const fs::path& path) override { (step(path), disk_->remove_folder(path)); }

 private:
  class File final : public runtime::WritableFile {
   public:
    File(FailingDisk& disk, fs::path path, std::unique_ptr<runtime::WritableFile> file)
        : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}
    void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
      try {
        disk_.step(path_);
      } catch (const Error&) {
        file_->write(offset, bytes.first(bytes.size() / 2));
        throw;
      }
      file_->write(offset, bytes);
    }
    void sync() override { (disk_.step(path_), file_->sync()); }

   private:
    FailingDisk& disk_;
    fs::path path_;
    std::unique_ptr<runtime::WritableFile> file_;
  };

  void step(const fs::path& path) {
    if (--left_ == -1) fail(Exit::failed, "{}: {}", path.string(), std::strerror(reason_));
  }

  std::atomic<int> left_;
  int reason_;
  std::unique_ptr<runtime::FileSystem> disk_ = runtime::posix_file_system();
};

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> out;
  if (!fs::exists(folder)) return out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename());
  return out;
}

const std::vector<std::string> kSmall = {"model.config.n_layer=1", "model.config.n_embd=24", "zero.stage=1"};

TEST(CheckpointFault, FullOrBrokenDiskAtEveryOperation) {
  const SavedRun reference;
  const auto sets = [](const SavedRun& run) {
    auto all = run.sets(2, kSmall);
    all.emplace_back("checkpoint.keep=1");
    return all;
  };
  const std::string weights = reference.run(2, sets(reference), 3).weights;
  int notes = 0;
  for (const int reason : {ENOSPC, EIO})
    for (int n = 0;; ++n) {
      SCOPED_TRACE(fmt::format("{} at operation {}", std::strerror(reason), n));
      const SavedRun run;
      FailingDisk disk(n, reason);
      std::string error;
      try {
        for (const std::string& note : run.run(2, sets(run), 3, {1, 2}, &disk).notes) error += note;
        // A failed removal does not end the run. It is reported, and tried again.
        if (disk.failed()) {
          ++notes;
          EXPECT_THAT(error, HasSubstr("could not be removed"));
        }
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      if (!disk.failed()) {
        EXPECT_EQ(error, "");
        break;
      }
      EXPECT_THAT(error, AllOf(HasSubstr(run.folder().path().string()), HasSubstr(std::strerror(reason))));
      const auto rest = run.run(2, sets(run), 3);
      EXPECT_THAT(entries(run.checkpoints()), testing::Each(testing::Not(HasSubstr("deleting"))));
      EXPECT_EQ(rest.weights, weights);
      EXPECT_THAT(rest.notes, IsEmpty()) << "an unfinished checkpoint does not count";
    }
  EXPECT_GT(notes, 4) << "a rename, files and a folder";
}

class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    run_.run(2, run_.sets(2, kSmall), 3, {2, 3});
    weights_ = run_.run(1, run_.sets(1, kSmall), 4).weights;
  }
  std::string path(const std::string& file) const { return (newest() / file).string(); }
  fs::path newest() const { return run_.checkpoints() / "step-00000003"; }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // auto takes the older one, says why on one line, and comes to the same weights.
  void expect_older(const auto& why) const {
    const auto rest = run_.run(1, run_.sets(1, kSmall), 4);
    EXPECT_EQ(rest.resumed, "step-00000002");
    EXPECT_THAT(rest.notes, ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr("step-00000003"), why)));
    EXPECT_EQ(rest.weights, weights_);
  }

  SavedRun run_;
  std::string weights_;
};

TEST_F(DamagedCheckpoint, FlippedBitsAreDetected) {
  std::mt19937 random(2);
  std::vector<std::byte> buffer(runtime::kBlockBytes);
  for (const char* name : {"manifest.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}) {
    const std::string whole = read(path(name));
    for (int i = 0; i < 400; ++i) {
      // Half of the flips are in the first pages, which hold headers.
      const std::size_t at = random() % std::min<std::size_t>(whole.size(), i % 2 ? whole.size() : 16384);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      write(path(name), damaged);
      const Error error = failure_of([&] {
        const Checkpoint checkpoint(newest());
        for (const std::string& kind : checkpoint.kinds())
          for (const auto& tensor : checkpoint.manifest().tensors)
            for (const auto& e : checkpoint.extents(kind, tensor.name))
              for (std::size_t block = 0; block < e.blocks(); ++block) checkpoint.read_block(e, block, buffer);
      });
      ASSERT_EQ(error.code(), Exit::corrupt) << name << " at " << at << ": " << error.what();
    }
    write(path(name), whole);
  }
  EXPECT_EQ(run_.run(1, run_.sets(1, kSmall), 4).resumed, "step-00000003");
}

TEST_F(DamagedCheckpoint, AnOlderCheckpointIsUsed) {
  const std::string shard = "rank-00001-of-00002.safetensors", whole = read(path(shard));
  std::string damaged = whole;
  damaged[whole.size() - 9] ^= 4;  // in the data, so it is found while reading
  write(path(shard), damaged);
  expect_older(AllOf(HasSubstr(shard), HasSubstr("expected checksum")));
  write(path(shard), whole.substr(0, whole.size() - 1));
  expect_older(AllOf(HasSubstr(shard), HasSubstr("bytes")));
  fs::remove(path(shard));
  expect_older(AllOf(HasSubstr(shard), HasSubstr("missing")));
  write(path(shard), whole);
  fs::remove(path("manifest.json"));
  expect_older(HasSubstr("manifest.json"));
}

// A damaged checkpoint is an error if it is named.
TEST_F(DamagedCheckpoint, IsRefusedWhenNamed) {
  fs::remove(path("rank-00000-of-00002.safetensors"));
  auto sets = run_.sets(2, kSmall);
  sets.push_back("checkpoint.resume=" + newest().string());
  EXPECT_FAILURE(run_.run(2, sets, 4), Exit::corrupt, HasSubstr("missing"));
}

// If all are damaged, only the user can start the run over: the damaged ones may be repaired, or exist elsewhere.
TEST_F(DamagedCheckpoint, IsAnErrorIfNoOtherIsIntact) {
  auto fresh = run_.sets(1, kSmall);
  fresh.emplace_back("checkpoint.resume=none");
  for (const char* step : {"step-00000002", "step-00000003"}) {
    const std::string file = (run_.checkpoints() / step / "rank-00001-of-00002.safetensors").string();
    std::string damaged = read(file);
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    write(file, damaged);
  }
  for (const bool manifests : {true, false}) {
    EXPECT_FAILURE(run_.run(2, run_.sets(2, kSmall), 4, {4}), Exit::corrupt,
                   AllOf(HasSubstr(run_.checkpoints().string()), HasSubstr("none of its 2 checkpoints is complete"),
                         HasSubstr("checkpoint.resume = \"none\"")));
    for (const char* step : {"step-00000002", "step-00000003"}) {
      EXPECT_TRUE(fs::exists(run_.checkpoints() / step));
      if (manifests) fs::remove(run_.checkpoints() / step / "manifest.json");
    }
  }
  EXPECT_EQ(run_.run(1, fresh, 4).weights, weights_);
}

// A folder of checkpoints means its newest undamaged one.
TEST_F(DamagedCheckpoint, AFolderMeansItsNewestCompleteCheckpoint) {
  fs::rename(run_.checkpoints(), run_.folder().path() / "before");
  auto sets = run_.sets(2, kSmall);
  sets.push_back("checkpoint.resume=" + (run_.folder().path() / "before").string());
  auto rest = run_.run(2, sets, 4);
  EXPECT_EQ(rest.resumed, "step-00000003");
  EXPECT_EQ(rest.weights, weights_);
  fs::resize_file(run_.folder().path() / "before/step-00000003/rank-00000-of-00002.safetensors", 9000);
  rest = run_.run(2, sets, 4);
  EXPECT_EQ(rest.resumed, "step-00000002");
  EXPECT_THAT(rest.notes, ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr("before/step-00000003"))));
  EXPECT_EQ(rest.weights, weights_);
}

// Tests through the command line.
class CheckpointCommand : public testing::Test {
 protected:
  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    more.push_back("checkpoint.dir=" + run_.file("checkpoints"));
    return run_.train(more);
  }
  TinyRun run_;
};

TEST_F(CheckpointCommand, RefusesAFolderThatAnotherRunUses) {
  const Running running(train({"training.max_steps=1000000", "checkpoint.every=1"}));
  ASSERT_TRUE(appears(run_.file("checkpoints/step-00000002")));
  for (const auto& command : {train(), under_mpirun(2, train())})
    EXPECT_COMPLAINT(run(command), Exit::usage, AllOf(HasSubstr("in use"), HasSubstr("checkpoints")));
}

// An existing folder stays, without a lock. A folder with other files is left alone.
TEST_F(CheckpointCommand, AFailedStartLeavesNoFiles) {
  const auto failing = train({"checkpoint.every=1", "checkpoint.resume=" + run_.file("none")});
  EXPECT_EQ(run(failing).code, static_cast<int>(Exit::usage));
  EXPECT_FALSE(fs::exists(run_.file("checkpoints")));
  fs::create_directory(run_.file("checkpoints"));
  EXPECT_EQ(run(failing).code, static_cast<int>(Exit::usage));
  EXPECT_TRUE(fs::is_empty(run_.file("checkpoints")));
  run_.folder().write("checkpoints/notes.txt", "mine");
  EXPECT_EQ(run(failing).code, static_cast<int>(Exit::usage));
  EXPECT_TRUE(fs::exists(run_.file("checkpoints/notes.txt")));
}

TEST_F(CheckpointCommand, RefusesANewerVersion) {
  ASSERT_EQ(run(train({"checkpoint.every=1"})).code, 0);
  const std::string manifest = run_.file("checkpoints/step-00000003/manifest.json");
  std::string text = run_.folder().read("checkpoints/step-00000003/manifest.json");
  text.replace(text.find("\"version\":1"), 11, "\"version\":9");
  run_.folder().write("checkpoints/step-00000003/manifest.json", runtime::with_checksum(text));
  EXPECT_COMPLAINT(run(train()), Exit::usage, AllOf(HasSubstr(manifest), HasSubstr("version 9")));
}

TEST_F(CheckpointCommand, RefusesAnotherModel) {
  ASSERT_EQ(run(train({"checkpoint.every=1"})).code, 0);
  EXPECT_COMPLAINT(run(under_mpirun(2, train({"model.config.n_embd=64", "checkpoint.every=1"}))), Exit::usage,
                   AllOf(HasSubstr("another model's"), HasSubstr("n_embd")));
  EXPECT_TRUE(fs::exists(run_.file("checkpoints/step-00000003")));
  EXPECT_COMPLAINT(run(train({"checkpoint.resume=" + run_.file("none")})), Exit::usage,
                   HasSubstr("there is no such checkpoint"));
  EXPECT_COMPLAINT(run(run_.command("eval", {"data.validation=" + run_.file("tokens.bin"),
                                             "checkpoint.resume=" + run_.file("none")})),
                   Exit::usage, HasSubstr("there is no such checkpoint"));
}

// The run is stopped twice and restarted by the same command: exit codes 75, 75, then 0. The report has each step once.
TEST_F(CheckpointCommand, StopsAndContinues) {
  const std::vector<std::string> sets = {"training.max_steps=6", "training.global_batch_size=4",
                                         "report.jsonl=" + run_.file("steps.jsonl"),
                                         "report.summary=" + run_.file("summary.json")};
  ASSERT_EQ(run(run_.train(sets)).code, 0);
  const auto hash = [&] {
    const std::string text = run_.folder().read("summary.json");
    return text.substr(text.find("weights_hash"), 50);
  };
  const std::string whole = hash();
  run_.folder().write("steps.jsonl", "");
  auto more = sets;
  more.emplace_back("checkpoint.stop_after=2");
  EXPECT_COMPLAINT(run(under_mpirun(2, train(more))), Exit::requeue, HasSubstr("after step 2; its checkpoint"));
  more.back() = "checkpoint.stop_after=4";
  more.emplace_back("checkpoint.every=3");
  EXPECT_COMPLAINT(run(train(more)), Exit::requeue, HasSubstr("after step 4"));
  // Lines of later steps are dropped, and so are incomplete ones.
  std::string lines = run_.folder().read("steps.jsonl");
  run_.folder().write("steps.jsonl", lines + "{\"step\":5,\"loss\":9}\n{\"st");
  const Outcome last = run(under_mpirun(4, train(more)));
  EXPECT_EQ(last.code, 0);
  EXPECT_THAT(last.errors, HasSubstr("checkpoint.stop_after = 4 has no effect: the run resumes after step 4"));
  EXPECT_EQ(hash(), whole);
  lines = run_.folder().read("steps.jsonl");
  std::size_t at = 0;
  for (int step = 1; step <= 6; ++step, ++at) {
    ASSERT_TRUE(lines.substr(at).starts_with(fmt::format("{{\"step\":{},", step))) << lines;
    at = lines.find('\n', at);
  }
  EXPECT_EQ(at, lines.size());
  // No step remains.
  fs::remove(run_.file("summary.json"));
  EXPECT_EQ(run(train(more)).code, 0);
  EXPECT_EQ(hash(), whole);
  EXPECT_EQ(run_.folder().read("steps.jsonl"), lines);
}

TEST_F(CheckpointCommand, StopsOnRequest) {
  for (const int ranks : {1, 2}) {
    const auto command =
        train({"training.max_steps=1000000", "scheduler.name=constant", "training.global_batch_size=2"});
    Running running(under_mpirun(ranks, command));
    ASSERT_TRUE(running.wait_until(
        [](const std::string&, const std::string& errors) { return errors.find("tokens/s") != std::string::npos; }));
    running.send(SIGUSR1);
    EXPECT_COMPLAINT(running.wait(), Exit::requeue, HasSubstr("its checkpoint is written"));
  }
}

// A run that is killed at any moment ends with the same weights after resuming.
TEST_F(CheckpointCommand, ResumesAfterAKillAtAnyMoment) {
  const char* asked = std::getenv("STRATA_KILLS");
  const int kills = asked ? std::atoi(asked) : 15;
  const int steps = 40 + 8 * kills;
  std::mt19937 random(3);
  for (const int ranks : {1, 2}) {
    const std::vector<std::string> sets = {fmt::format("training.max_steps={}", steps), "training.global_batch_size=2",
                                           "zero.stage=3", "report.summary=" + run_.file("summary.json")};
    ASSERT_EQ(run(run_.train(sets)).code, 0);
    const auto hash = [&] {
      const std::string text = run_.folder().read("summary.json");
      return text.substr(text.find("weights_hash"), 50);
    };
    const std::string whole = hash();
    auto more = sets;
    more.emplace_back("checkpoint.every=1");
    fs::remove_all(run_.file("checkpoints"));
    int killed = 0;
    for (; killed < kills / 2 + 1; ++killed) {
      for (int rank = 0; rank < ranks; ++rank) fs::remove(run_.file(fmt::format("pid.{}", rank)));
      Running running(under_mpirun(
          ranks, train(more), "echo $$ >" + run_.folder().path().string() + "/pid.$OMPI_COMM_WORLD_RANK; exec \"$@\""));
      running.wait_until(
          [](const std::string&, const std::string& errors) { return errors.find("tokens/s") != std::string::npos; },
          20);
      usleep(static_cast<useconds_t>(random() % 120'000));
      for (int rank = 0; rank < ranks; ++rank) kill(number_from(run_.file(fmt::format("pid.{}", rank))), SIGKILL);
      running.wait(20);
    }
    const Outcome outcome = run(under_mpirun(ranks, train(more)), 120);
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.errors, HasSubstr("resumes after step"));
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("passed over")));
    EXPECT_EQ(hash(), whole);
  }
}

}  // namespace
}  // namespace strata::tests

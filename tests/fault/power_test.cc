// Power failures. Any of the writes since the last fsync may have reached the disk. A published checkpoint still loads,
// and no checkpoint loads with other contents than were written.
#include <gmock/gmock.h>
#include <xxhash.h>

#include <fstream>
#include <random>
#include <set>

#include "tests/fault/recorded_disk.h"
#include "tests/runtime/saved_run.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using runtime::Checkpoint;
using runtime::SavedRun;

constexpr const char* kFolder = "runs/one";

// The complete contents of a checkpoint. Every block is verified.
std::string contents(const Checkpoint& checkpoint) {
  std::vector<std::byte> buffer(runtime::kBlockBytes);
  std::uint64_t sum = static_cast<std::uint64_t>(checkpoint.manifest().progress.step);
  for (const std::string& kind : checkpoint.kinds())
    for (const runtime::TensorEntry& tensor : checkpoint.manifest().tensors)
      for (const runtime::Extent& e : checkpoint.extents(kind, tensor.name))
        for (std::size_t block = 0; block < e.blocks(); ++block) {
          const auto bytes = checkpoint.read_block(e, block, buffer);
          sum = XXH3_64bits_withSeed(bytes.data(), bytes.size(), sum);
        }
  return fmt::format("step {}: {:016x}", checkpoint.manifest().progress.step, sum);
}

// The contents of the folder's newest undamaged checkpoint, as `auto` takes it; empty if there is none.
std::string newest(const fs::path& folder) {
  if (!fs::exists(folder)) return "";
  for (const runtime::FoundCheckpoint& found : runtime::list_checkpoints(folder)) {
    if (!found.damage.empty()) continue;
    try {
      return contents(Checkpoint(found.path));
    } catch (const Error&) {
    }
  }
  return "";
}

class PowerFault : public testing::TestWithParam<int> {
 protected:
  // Two ranks write four checkpoints and keep one or two. If one is kept and an older one is removed too early, none is
  // left.
  void SetUp() override {
    // The folder's parent does not exist yet either: a lost entry takes everything below it along.
    const auto sets = run_.sets(2, {"model.config.n_layer=1", "model.config.n_embd=12", "zero.stage=2",
                                    "checkpoint.dir=" + (run_.folder().path() / kFolder).string(),
                                    fmt::format("checkpoint.keep={}", GetParam())});
    RecordingDisk disk(run_.folder().path());
    run_.run(2, sets, 4, {1, 2, 3, 4}, &disk);
    operations_ = disk.operations();
    covered_ = CrashImage::covered_by(operations_);
    // The contents of each checkpoint, from a run that keeps all of them.
    const SavedRun other;
    auto all = other.sets(2, {"model.config.n_layer=1", "model.config.n_embd=12", "zero.stage=2", "checkpoint.keep=9"});
    other.run(2, all, 4, {1, 2, 3, 4});
    for (const auto& found : runtime::list_checkpoints(other.checkpoints()))
      written_.insert(written_.begin(), contents(Checkpoint(found.path)));
    ASSERT_EQ(written_.size(), 4u);
  }

  // The number of checkpoints that are durable after this many operations: their folder was synced after the rename.
  std::size_t durable(std::size_t count) const {
    std::size_t renames = 0, sure = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const DiskOperation& o = operations_[i];
      if (o.kind == DiskOperation::Kind::rename && o.to.find("deleting") == std::string::npos) ++renames;
      if (o.kind == DiskOperation::Kind::sync_folder && o.path == kFolder) sure = renames;
    }
    return sure;
  }

  void expect_loadable(std::size_t count, const CrashImage::Luck& luck) {
    const CrashImage image(operations_, covered_, count, luck);
    const std::size_t sure = durable(count);
    if (!seen_.insert(image.key() + std::to_string(sure)).second) return;
    const ScratchFolder folder(fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path());
    image.put_into(folder.path());
    const std::string found = newest(folder.path() / kFolder);
    const auto known = std::find(written_.begin(), written_.end(), found);
    ASSERT_TRUE(found.empty() || known != written_.end()) << "other contents after " << count << ": " << found;
    const std::size_t loads = found.empty() ? 0 : static_cast<std::size_t>(known - written_.begin()) + 1;
    ASSERT_GE(loads, sure) << "lost after " << count << " operations";
  }

  SavedRun run_;
  std::vector<DiskOperation> operations_;
  std::vector<std::size_t> covered_;
  std::vector<std::string> written_;  // contents of each checkpoint, in order
  std::set<std::string> seen_;
};

INSTANTIATE_TEST_SUITE_P(Kept, PowerFault, testing::Values(1, 2));

TEST_P(PowerFault, EveryPrefix) {
  for (std::size_t count = 0; count <= operations_.size(); ++count) {
    expect_loadable(count, [](std::size_t) { return 0.0; });
    expect_loadable(count, [](std::size_t) { return 1.0; });
  }
  EXPECT_EQ(durable(operations_.size()), 4u);
}

TEST_P(PowerFault, EveryWriteDroppedOrTorn) {
  for (std::size_t count = 0; count <= operations_.size(); ++count)
    for (std::size_t victim = 0; victim < count; ++victim)
      for (const double part : {0.0, 0.1, 0.5, 0.99}) {
        const bool torn = part > 0 && operations_[victim].kind != DiskOperation::Kind::write;
        if (torn || operations_[victim].is_sync()) continue;
        expect_loadable(count, [&](std::size_t i) { return i == victim ? part : 1.0; });
      }
}

TEST_P(PowerFault, RandomSubsets) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t count = random() % (operations_.size() + 1);
    const double likely = uniform(random);
    std::map<std::size_t, double> drawn;
    expect_loadable(count, [&](std::size_t o) {
      const double draw = uniform(random);
      return draw < likely                                                              ? 1.0
             : draw < likely + 0.2 && operations_[o].kind == DiskOperation::Kind::write ? uniform(random)
                                                                                        : 0.0;
    });
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace strata::tests

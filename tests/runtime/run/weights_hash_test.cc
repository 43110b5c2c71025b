// weights_hash next to its definition in docs/formats.md, over the values that a checkpoint has.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "models/files/config.h"
#include "runtime/checkpoint/reader.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kBlock = 4096;  // elements
constexpr std::size_t kAlignment = 256;

std::string hash_of_units(const std::vector<std::vector<float>>& units) {
  std::uint64_t low = 0, high = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (std::size_t block = 0; block * kBlock < units[unit].size(); ++block) {
      std::vector<float> values(kBlock);
      const std::size_t first = block * kBlock, size = std::min(kBlock, units[unit].size() - first);
      std::memcpy(values.data(), units[unit].data() + first, size * sizeof(float));
      const XXH128_hash_t hash =
          XXH3_128bits_withSeed(values.data(), 4 * kBlock, (std::uint64_t{unit} << 40) + std::uint64_t{block});
      low += hash.low64;
      high += hash.high64;
    }
  return fmt::format("{:016x}{:016x}", high, low);
}

// Every unit's tensors in their order, each at the next multiple of 256 elements.
std::string documented_hash(const std::filesystem::path& folder) {
  const Checkpoint checkpoint(folder);
  const auto model = models::make_model(models::Config::parse(checkpoint.manifest().config, "config"),
                                        {1, 1, device::DType::fp32, 1, false});
  const auto weights = checkpoint_weights(checkpoint, *model);
  std::vector<std::vector<float>> units;
  for (std::size_t unit = 0; unit < model->units.size(); ++unit) {
    std::vector<float>& buffer = units.emplace_back();
    for (std::size_t p = 0; p < model->units[unit]->parameters().size(); ++p) {
      std::vector<float> values(model->units[unit]->parameters()[p].size());
      weights->read(unit, p, 0, values);
      buffer.resize((buffer.size() + kAlignment - 1) / kAlignment * kAlignment);
      buffer.insert(buffer.end(), values.begin(), values.end());
    }
  }
  return hash_of_units(units);
}

struct HashedRun {
  int ranks;
  std::vector<std::string> more;
};

class WeightsHashTest : public testing::TestWithParam<HashedRun> {};

TEST_P(WeightsHashTest, IsTheDocumentedSum) {
  const SavedRun run;
  const std::string hash = run.run(GetParam().ranks, run.sets(GetParam().ranks, GetParam().more), 2, {2}).weights;
  EXPECT_EQ(hash, documented_hash(run.checkpoints() / "step-00000002"));
}

INSTANTIATE_TEST_SUITE_P(
    Runs, WeightsHashTest,
    testing::Values(HashedRun{1, {}}, HashedRun{2, {"zero.stage=3", "training.precision=bf16"}},
                    HashedRun{2, {"parallel.stages=2", "training.micro_batch_size=1"}},
                    HashedRun{2, {"parallel.tensor=2", "parallel.tensor_shards=4", "model.config.n_head=4"}},
                    HashedRun{2, {R"(training.freeze=["*.wte.*", "*.h.0.*", "*.h.1.ln_1.*"])", "zero.stage=2"}},
                    HashedRun{1, {R"(training.freeze=["*.wpe.*", "*.h.1.mlp.*"])", "training.precision=bf16"}}));

}  // namespace
}  // namespace strata::runtime

#include "runtime/weights/weights.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/files/safetensors_writer.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

// Weights that note what was said ahead of the reads.
class Noted final : public WeightSource {
 public:
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    EXPECT_EQ(said_.count({unit, parameter, begin, out.size()}), 1u) << unit << ' ' << parameter << ' ' << begin;
    read_ += out.size();
    std::fill(out.begin(), out.end(), 1.0f);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    EXPECT_TRUE(said_.insert({unit, parameter, begin, count}).second) << "twice";
  }
  std::size_t read() const { return read_; }

 private:
  mutable std::set<std::array<std::size_t, 4>> said_;
  mutable std::size_t read_ = 0;
};

TEST(LoadWeights, ReadsWhatItSaidAhead) {
  const SavedRun run;
  const Recipe recipe = load_recipe(std::nullopt, run.sets(1));
  const Job job = make_job(recipe, 1, capacity_of(recipe.memory, 1));
  const auto world = comm::solo_world();
  Trainer trainer(job, *world, 1, Trainer::Weights::later);
  const Noted weights;
  load_weights(trainer.executor(), job.plan, weights, 1);
  EXPECT_EQ(weights.read(), static_cast<std::size_t>(job.model->parameters()));
}

using testing::HasSubstr;

std::unique_ptr<models::Model> tied_model() {
  return make_model(models::Config::parse(R"({"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":1,"n_positions":4,
                                              "vocab_size":5})",
                                          "config.json"),
                    {1, 4, device::DType::fp32, 1});
}

// Reads a file of the model's tensors and, behind them, one of the token table's shape whose elements are `value`.
void read_with(const std::string& name, float value) {
  const auto model = tied_model();
  std::vector<models::TensorSpec> tensors;
  for (const auto& unit : model->units)
    for (const models::Parameter& p : unit->parameters()) tensors.push_back({p.name, device::DType::fp32, p.shape});
  tensors.push_back({name, device::DType::fp32, tensors[0].shape});
  std::string file = models::safetensors_header(tensors);
  for (const models::TensorSpec& t : tensors) {
    const std::vector<float> values(t.bytes() / sizeof(float), &t == &tensors.back() ? value : 0.5f);
    file.append(reinterpret_cast<const char*>(values.data()), t.bytes());
  }
  const tests::ScratchFolder folder;
  folder.write("model.safetensors", file);
  std::vector<float> read(3);
  stored_weights(*model, folder.path())->read(0, 0, 2, read);
  EXPECT_EQ(read, (std::vector<float>{0.5f, 0.5f, 0.5f}));
}

// Some writers store a shared tensor under the name of each unit that uses it: it has to be the same.
TEST(WeightsTest, ASharedTensorMayBeStoredOnceMore) {
  EXPECT_NO_THROW(read_with("lm_head.weight", 0.5f));
  EXPECT_FAILURE(read_with("lm_head.weight", 0.25f), Exit::corrupt, HasSubstr("lm_head.weight is not one that"));
  EXPECT_FAILURE(read_with("head.weight", 0.5f), Exit::corrupt, HasSubstr("head.weight is not one that"));
}

}  // namespace
}  // namespace strata::runtime

#include "runtime/weights/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "tests/runtime/saved_run.h"

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

}  // namespace
}  // namespace strata::runtime

// Runs that do not fit: refused before anything is allocated, with recipes that do; and memory that the system refuses.
#include <gmock/gmock.h>
#include <simdjson.h>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using simdjson::dom::element;
using testing::AllOf;
using testing::HasSubstr;

class MemoryFault : public testing::Test {
 protected:
  struct Plan {
    bool fits = false;
    std::uint64_t peak = 0;
    std::vector<std::vector<std::string>> nearest;  // for each, the --set options that it takes
  };

  Plan plan(int ranks, const std::vector<std::string>& sets) {
    auto command = run_.command("plan", sets);
    for (const std::string& word :
         {std::string("--ranks"), std::to_string(ranks), std::string("--json"), run_.file("plan.json")})
      command.push_back(word);
    const Outcome outcome = run(command);
    simdjson::dom::parser parser;
    const element json = parser.load(run_.file("plan.json"));
    Plan plan{json["fits"], json["memory"]["device"]["planned_peak_bytes"], {}};
    EXPECT_EQ(outcome.code, static_cast<int>(plan.fits ? Exit::done : Exit::does_not_fit)) << outcome.all();
    for (const element suggestion : json["nearest"]) {
      auto& changes = plan.nearest.emplace_back(sets);
      for (const auto change : simdjson::dom::object(suggestion))
        changes.push_back(fmt::format("{}={}", change.key, simdjson::minify(change.value)));
    }
    return plan;
  }

  TinyRun run_;
};

// Every rank refuses before it allocates anything. Each of the nearest recipes fits, and the refused run then runs with
// it.
TEST_F(MemoryFault, NearestRecipesReallyFit) {
  const std::vector<std::string> sets = {"training.micro_batch_size=4", "training.max_steps=1",
                                         "model.config.n_layer=4"};
  const std::uint64_t needed = plan(2, sets).peak;
  std::size_t tried = 0;
  for (const double part : {0.95, 0.75, 0.62}) {
    SCOPED_TRACE(part);
    auto small = sets;
    small.push_back(fmt::format("memory.device={}", static_cast<std::uint64_t>(static_cast<double>(needed) * part)));
    const Plan refused = plan(2, small);
    ASSERT_FALSE(refused.fits);
    ASSERT_FALSE(refused.nearest.empty());
    const Outcome outcome = run(under_mpirun(2, run_.train(small)));
    EXPECT_COMPLAINT(outcome, Exit::does_not_fit,
                     AllOf(HasSubstr(std::to_string(needed)), HasSubstr("memory.device"), HasSubstr("it fits with")));
    EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("strata: model "))) << "refused before the run is described";
    for (const auto& nearest : refused.nearest) {
      SCOPED_TRACE(nearest.back());
      EXPECT_TRUE(plan(2, nearest).fits);
      ++tried;
    }
    EXPECT_EQ(run(under_mpirun(2, run_.train(refused.nearest.front()))).code, 0);
  }
  EXPECT_GE(tried, 3u);
}

TEST_F(MemoryFault, ReportsThatMoreRanksDoNotHelp) {
  const Plan refused = plan(2, {"memory.device=4KiB"});
  EXPECT_FALSE(refused.fits);
  EXPECT_TRUE(refused.nearest.empty());
  EXPECT_COMPLAINT(run(under_mpirun(2, run_.train({"memory.device=4KiB"}))), Exit::does_not_fit,
                   HasSubstr("on these ranks or more: use a smaller model"));
}

// One rank runs under a limit: the system refuses its memory, and the others do not wait for it. No rank gets as far as
// touching the memory of this large model.
TEST_F(MemoryFault, SystemRefusesOneRank) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer reserves more addresses than any limit allows";
#endif
  for (const char* transport : {"shared", "messages"}) {
    SCOPED_TRACE(transport);
    const Outcome outcome =
        run(under_mpirun(3,
                         run_.train({std::string("comm.transport=") + transport, "model.config.vocab_size=50000",
                                     "model.config.n_embd=1024", "training.max_steps=1", "zero.stage=1"}),
                         "test $OMPI_COMM_WORLD_RANK != 1 || ulimit -v 1000000; exec \"$@\""));
    EXPECT_COMPLAINT(outcome, Exit::does_not_fit,
                     AllOf(HasSubstr("rank 1: the system refused"), HasSubstr("bytes"), HasSubstr("memory.device")));
  }
}

}  // namespace
}  // namespace strata::tests

#include "comm/same_files.h"

#include <gmock/gmock.h>

#include "comm/agreement.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/evaluator.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// ---------------------------------------------------------------------------------------------------- fingerprints

std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  return bytes;
}

TEST(FingerprintOf, CoversEveryByteOfShortData) {
  const comm::Coverage coverage{1000, 4, 16};
  auto bytes = numbered(1000);
  const std::string fingerprint = comm::fingerprint_of(bytes, coverage);
  EXPECT_THAT(fingerprint, testing::StartsWith("1000 bytes, hash "));
  for (std::size_t i = 0; i < bytes.size(); i += 37) {
    bytes[i] ^= std::byte{1};
    EXPECT_NE(comm::fingerprint_of(bytes, coverage), fingerprint) << i;
    bytes[i] ^= std::byte{1};
  }
  EXPECT_EQ(comm::fingerprint_of(bytes, coverage), fingerprint);
  EXPECT_NE(comm::fingerprint_of(std::span(bytes).first(999), coverage), fingerprint);
}

// Reads blocks from the first byte to the last, in equal strides, and nothing else.
TEST(FingerprintOf, SamplesLongData) {
  const comm::Coverage coverage{1000, 4, 16};
  auto bytes = numbered(1001);
  const std::string fingerprint = comm::fingerprint_of(bytes, coverage);
  std::vector<std::size_t> seen;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{1};
    if (comm::fingerprint_of(bytes, coverage) != fingerprint) seen.push_back(i);
    bytes[i] ^= std::byte{1};
  }
  std::vector<std::size_t> blocks;
  for (const std::size_t begin : {0, 328, 656, 985})
    for (std::size_t i = begin; i < begin + 16; ++i) blocks.push_back(i);
  EXPECT_EQ(seen, blocks);
  bytes.push_back(std::byte{0});
  EXPECT_NE(comm::fingerprint_of(bytes, coverage), fingerprint) << "longer";
}

TEST(LookAt, NamesTheFileAndItsKeyOrTheReason) {
  const tests::ScratchFolder folder;
  const comm::FileFingerprint there = comm::fingerprint_file(folder.write("a.bin", "abc"), "data.train");
  EXPECT_THAT(there.name, AllOf(HasSubstr("a.bin"), HasSubstr("(data.train)")));
  EXPECT_THAT(there.fingerprint, HasSubstr("3 bytes"));
  EXPECT_THAT(comm::fingerprint_file(folder.path() / "none", "data.train").fingerprint, HasSubstr("cannot be opened"));
}

// ---------------------------------------------------------------------------------------------------- agreement

// The error of all ranks, which must be the same, if rank r has all[r].
Error refusal_of(const std::vector<std::vector<comm::FileFingerprint>>& all) {
  std::vector<std::string> words(all.size());
  const Error error = tests::failure_of([&] {
    comm::run_threads(static_cast<int>(all.size()), [&](comm::World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      try {
        comm::require_same(all[rank], world);
      } catch (const comm::AgreedError& agreed) {
        words[rank] = agreed.what();
        throw;
      }
    });
  });
  for (const std::string& text : words) EXPECT_EQ(text, error.what());
  return error;
}

TEST(RequireSame, AcceptsTheSameContentUnderAnyName) {
  EXPECT_EQ(refusal_of({{{"a", "1"}, {"b", "2"}}, {{"other/a", "1"}, {"b", "2"}}}).code(), Exit::done);
  EXPECT_EQ(refusal_of({{}, {}, {}}).code(), Exit::done);
}

TEST(RequireSame, NamesTheRankThatDiffersFromMost) {
  const std::vector<comm::FileFingerprint> usual = {{"a", "1"}, {"b", "2"}}, odd = {{"a", "1"}, {"b", "3"}};
  const Error last = refusal_of({usual, usual, odd});
  EXPECT_EQ(last.code(), Exit::failed);
  EXPECT_THAT(last.what(), HasSubstr("rank 2 sees a different b than rank 0 (3, not 2): "));
  EXPECT_THAT(refusal_of({odd, usual, usual}).what(), HasSubstr("rank 0 sees a different b than rank 1 (3, not 2): "));
  EXPECT_THAT(refusal_of({usual, odd}).what(), HasSubstr("rank 1 sees a different b than rank 0 (3, not 2): "));
}

TEST(RequireSame, NamesWhatExistsOnOneRankOnly) {
  const comm::FileFingerprint a{"a", "1"}, b{"b", "2"}, c{"c", "3"};
  EXPECT_THAT(refusal_of({{a, b}, {a}}).what(), HasSubstr("rank 0 sees b, which rank 1 does not: "));
  EXPECT_THAT(refusal_of({{a}, {a, b}}).what(), HasSubstr("rank 1 sees b, which rank 0 does not: "));
  EXPECT_THAT(refusal_of({{a, b, c}, {a, c}}).what(), HasSubstr("rank 1 reads c, but rank 0 reads b: "));
}

// ---------------------------------------------------------------------------------------------------- runs

// Two ranks as on nodes with disks of their own: each reads from the folder NODE/ of its rank.
class RanksWithDisks : public testing::Test {
 protected:
  RanksWithDisks() {
    for (const int rank : {0, 1}) {
      fs::create_directories(disk(rank));
      fs::copy(run_.folder().path() / "tokens.bin", disk(rank));
    }
    // A table above 64 KiB, of which only samples would be compared in a model above 1 GiB.
    const Recipe recipe = load_recipe(std::nullopt, run_.sets(2, {"model.config.vocab_size=900"}));
    const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
    for (const int rank : {0, 1})
      export_model(job.config(), *random_weights(*job.model, 3), std::nullopt, disk(rank) / "model", {});
  }
  fs::path disk(int rank) const { return run_.folder().path() / fmt::format("node{}", rank); }

  // Inverts a bit of a byte of rank 1's copy.
  void damage(const std::string& file, std::uint64_t at) const {
    std::fstream stream(disk(1) / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
    ASSERT_TRUE(stream.good());
  }
  // Byte `at` of a tensor, in its file.
  std::uint64_t place(const std::string& tensor, std::uint64_t at) const {
    const auto file = models::Safetensors::open(disk(1) / "model");
    const models::StoredTensor* found = file.find(tensor);
    EXPECT_NE(found, nullptr);
    EXPECT_LT(at, found->bytes.size());
    return found->file_offset + at;
  }
  std::vector<std::string> sets(int rank, int stage) const {
    return {"model.path=" + (disk(rank) / "model").string(),
            "data.train=" + (disk(rank) / "tok*.bin").string(),
            "data.validation=" + (disk(rank) / "tokens.bin").string(),
            "data.seq_len=16",
            "training.max_steps=1",
            "training.precision=fp32",
            fmt::format("zero.stage={}", stage)};
  }
  Error train(int stage) const {
    return tests::failure_of([&] {
      comm::run_threads(2, [&](comm::World& world) {
        const Recipe recipe = load_recipe(std::nullopt, sets(world.rank(), stage));
        const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
        Trainer trainer(job, world, 1);
        trainer.load_initial_weights(1);
        (void)trainer.step(false);
      });
    });
  }
  Error evaluate(int stage) const {
    return tests::failure_of([&] {
      comm::run_threads(2, [&](comm::World& world) {
        const Recipe recipe = load_recipe(std::nullopt, sets(world.rank(), stage));
        const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1), Purpose::evaluate);
        Evaluator evaluator(job, world, 1, *first_weights(job, world, 1, {}));
        (void)evaluator.run([](auto, auto) { return true; });
      });
    });
  }

  SavedRun run_;
};

TEST_F(RanksWithDisks, AcceptEqualCopies) {
  for (const int stage : {0, 3}) {
    EXPECT_STREQ(train(stage).what(), "");
    EXPECT_STREQ(evaluate(stage).what(), "");
  }
}

TEST_F(RanksWithDisks, DetectOtherTokens) {
  damage("tokens.bin", 1000);
  const auto reads = [&](const char* key) {
    return AllOf(HasSubstr(fmt::format("rank 1 reads {} ({})", (disk(1) / "tokens.bin").string(), key)),
                 HasSubstr("but rank 0 reads"));
  };
  EXPECT_THAT(train(0).what(), reads("data.train"));
  EXPECT_THAT(evaluate(3).what(), reads("data.validation"));
}

TEST_F(RanksWithDisks, DetectAnotherNumberOfFiles) {
  fs::copy_file(disk(1) / "tokens.bin", disk(1) / "tokens2.bin");
  EXPECT_THAT(train(0).what(), AllOf(HasSubstr("rank 1 "), HasSubstr("tokens2.bin (data.train)")));
}

// The bytes are the same, but the widths differ.
TEST_F(RanksWithDisks, DetectAnotherSidecar) {
  for (const char* file : {"node0/tokens.bin", "node1/tokens.bin"}) run_.folder().write(file, std::string(4000, '\0'));
  run_.folder().write("node1/tokens.bin.json", R"({"vocab_size": 900, "width": 4, "count": 1000})");
  EXPECT_THAT(train(0).what(), HasSubstr("tokens.bin (data.train)"));
}

TEST_F(RanksWithDisks, DetectOtherWeightsInSamples) {
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{900} * 48 * 4 - 2}) {
    damage("model/model.safetensors", place("transformer.wte.weight", at));
    for (const int stage : {0, 3}) {
      EXPECT_THAT(train(stage).what(), HasSubstr("tensor transformer.wte.weight of")) << at;
      EXPECT_THAT(evaluate(stage).what(), HasSubstr("tensor transformer.wte.weight of")) << at;
    }
    damage("model/model.safetensors", place("transformer.wte.weight", at));
  }
  damage("model/model.safetensors", place("transformer.h.1.ln_2.bias", 4));
  EXPECT_THAT(train(3).what(), HasSubstr("tensor transformer.h.1.ln_2.bias of"));
}

// Differences are found even if no two ranks read the same bytes, or between the samples of a larger model.
TEST_F(RanksWithDisks, DetectOtherWeightsAnywhere) {
  damage("model/model.safetensors", place("transformer.wte.weight", 20'000));
  for (const int stage : {0, 2, 3}) {
    EXPECT_THAT(train(stage).what(), HasSubstr("tensor transformer.wte.weight of")) << stage;
    EXPECT_THAT(evaluate(stage).what(), HasSubstr("tensor transformer.wte.weight of")) << stage;
  }
}

TEST(OfTensors, CoversSmallModelsCompletely) {
  constexpr std::size_t kWhole = std::size_t{1} << 30;
  EXPECT_EQ(comm::of_tensors(kWhole).whole, kWhole);
  EXPECT_EQ(comm::of_tensors(kWhole + 1).whole, std::size_t{64} << 10);
}

// A checkpoint's manifest has the checksums of everything that is read after it.
TEST_F(RanksWithDisks, DetectOtherCheckpoints) {
  const auto save = [&](const char* seed) {
    (void)run_.run(2, run_.sets(2, {seed, "zero.stage=3"}), 1, {1});
    const fs::path to = run_.folder().path() / seed;
    fs::rename(run_.checkpoints() / "step-00000001", to);
    fs::remove_all(run_.checkpoints());
    return to;
  };
  const fs::path folders[] = {save("optimizer.weight_decay=0"), save("optimizer.weight_decay=0.5")};
  const auto go_on = [&](bool same) {
    return tests::failure_of([&] {
      comm::run_threads(2, [&](comm::World& world) {
        const fs::path& folder = folders[same ? 0 : world.rank()];
        const Recipe recipe = load_recipe(std::nullopt, run_.sets(2, {"checkpoint.resume=" + folder.string()}));
        const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
        Trainer trainer(job, world, 1);
        (void)start_or_resume(trainer, job, world, 1, [](const std::string&) {});
      });
    });
  };
  EXPECT_STREQ(go_on(true).what(), "");
  EXPECT_THAT(go_on(false).what(), AllOf(HasSubstr("rank 1 reads "), HasSubstr("manifest.json")));
}

}  // namespace
}  // namespace strata::runtime

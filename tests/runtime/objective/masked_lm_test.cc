#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "device/ops/losses/losses.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/open_data.h"
#include "runtime/data/sequences/packed_sequences.h"
#include "runtime/objective/objective.h"
#include "runtime/objective/rules.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

using device::RowRange;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::TokenFolder;

constexpr std::int32_t kMaskedLmNone = device::kIgnoredLabel;
constexpr std::uint32_t kMask = 4, kWords = 500;

MaskedTokens::Vocabulary vocabulary() {
  return {kMask, kWords, {true, true, true, true, true}};
}

// The rows of a piece, before and after the labelling.
struct Masked {
  std::vector<std::uint32_t> tokens;
  std::vector<std::int32_t> labels;
  Masked(const Labelling& labelling, const Piece& piece, std::uint64_t epoch) : tokens(piece.rows), labels(piece.rows) {
    piece.file.read(piece.begin, tokens);
    labelling.fill(piece, epoch, {tokens, labels, {}, {}});
  }
  std::vector<std::uint32_t> chosen() const {
    std::vector<std::uint32_t> out;
    for (std::uint32_t row = 0; row < labels.size(); ++row)
      if (labels[row] != kMaskedLmNone) out.push_back(row);
    return out;
  }
};

class MaskedTokensTest : public testing::Test {
 protected:
  MaskedTokensTest() {
    folder_.mask_token = kMask;
    folder_.special_tokens = {0, 1, 2, 3, 4};
  }
  // One document with these rows and ascending tokens from `first` on.
  Piece document(std::uint64_t rows, std::uint32_t first = 10, std::optional<std::string_view> mask = std::nullopt) {
    folder_.write("a.bin", {rows}, mask, first);
    files_ = folder_.open({"a.bin"});
    documents_.clear();
    documents_.emplace_back(files_[0]);
    return {files_[0], &documents_[0], 0, 0, rows, 0, static_cast<std::uint32_t>(rows)};
  }
  TokenFolder folder_{kWords};
  std::vector<TokenFile> files_;
  std::vector<Documents> documents_;
};

TEST_F(MaskedTokensTest, ChoosesAShareOfEachDocumentAndAtLeastOne) {
  const MaskedTokens labelling(vocabulary(), 0.15, 1, 0);
  for (const std::uint64_t rows : {1, 3, 9, 10, 16, 17, 100, 470}) {
    const Piece piece = document(rows);
    const auto k = static_cast<std::size_t>(std::max(1.0, std::round(0.15 * static_cast<double>(rows))));
    EXPECT_EQ(labelling.most(piece), k);
    EXPECT_EQ(labelling.count(piece), k);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      const Masked masked(labelling, piece, epoch);
      EXPECT_EQ(masked.chosen().size(), k) << rows;
      for (std::uint32_t row = 0; row < rows; ++row) {
        if (masked.labels[row] == kMaskedLmNone)
          EXPECT_EQ(masked.tokens[row], 10 + row);
        else
          EXPECT_EQ(masked.labels[row], static_cast<std::int32_t>(10 + row));
      }
    }
  }
}

// A second implementation of docs/formats.md, "Masked tokens", by sorting.
TEST_F(MaskedTokensTest, ChoosesTheSmallestNumbers) {
  const auto scrambled = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  const std::uint64_t seed = 7, stream = 2, epoch = 3;
  const MaskedTokens labelling(vocabulary(), 0.3, seed, stream);
  Piece piece = document(200);
  piece.place = 1000;
  const std::uint64_t key = scrambled(scrambled(scrambled(seed) ^ stream) ^ epoch);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> numbers;
  for (std::uint32_t row = 0; row < 200; ++row) numbers.emplace_back(scrambled(key ^ (1000 + row)) >> 32, row);
  std::sort(numbers.begin(), numbers.end());
  std::set<std::uint32_t> want;
  for (std::size_t i = 0; i < 60; ++i) want.insert(numbers[i].second);
  const Masked masked(labelling, piece, epoch);
  const auto chosen = masked.chosen();
  EXPECT_EQ(std::set(chosen.begin(), chosen.end()), want);
  for (const std::uint32_t row : chosen) {
    const std::uint64_t more = scrambled(scrambled(key ^ (1000 + row)));
    const std::uint64_t draw = (more >> 32) * 10 >> 32;
    const std::uint64_t token = draw < 8 ? kMask : draw == 8 ? (more & 0xffffffffu) * kWords >> 32 : 10 + row;
    EXPECT_EQ(masked.tokens[row], token) << row;
  }
}

TEST_F(MaskedTokensTest, MasksEightOfTenAndReplacesOneAtRandom) {
  const MaskedTokens labelling(vocabulary(), 0.15, 1, 0);
  const Piece piece = document(480);
  double masked = 0, same = 0, all = 0;
  std::set<std::uint32_t> random;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Masked m(labelling, piece, epoch);
    for (const std::uint32_t row : m.chosen()) {
      ++all;
      masked += m.tokens[row] == kMask;
      same += m.tokens[row] == 10 + row;
      if (m.tokens[row] != kMask && m.tokens[row] != 10 + row) random.insert(m.tokens[row]);
    }
  }
  // The tolerance is four standard deviations for a share of 28,800.
  EXPECT_NEAR(masked / all, 0.8 + 0.1 / kWords, 0.0095);
  EXPECT_NEAR(same / all, 0.1 + 0.1 / kWords, 0.0071);
  EXPECT_GT(random.size(), kWords - 10) << "any word is possible";
}

TEST_F(MaskedTokensTest, SelectionDependsOnEpochSourceAndSeed) {
  const Piece piece = document(300);
  std::set<std::vector<std::uint32_t>> draws;
  for (const std::uint64_t seed : {1, 2})
    for (const std::uint64_t stream : {std::uint64_t{0}, std::uint64_t{1}, kValidationStream})
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const MaskedTokens labelling(vocabulary(), 0.15, seed, stream);
        draws.insert(Masked(labelling, piece, epoch).chosen());
        EXPECT_EQ(Masked(labelling, piece, epoch).tokens, Masked(labelling, piece, epoch).tokens);
      }
  EXPECT_EQ(draws.size(), 2u * 3 * 3);
}

TEST_F(MaskedTokensTest, NeverChoosesSpecialOrExcludedTokens) {
  const MaskedTokens labelling(vocabulary(), 0.9, 1, 0);
  // Tokens 5 to 11 are words, and the mask counts four of them.
  const Piece piece = document(12, 0, "111111100111");
  EXPECT_EQ(labelling.most(piece), 9u);
  EXPECT_EQ(labelling.count(piece), 5u);  // round(0.9 * 5)
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch)
    for (const std::uint32_t row : Masked(labelling, piece, epoch).chosen())
      EXPECT_THAT(row, testing::AnyOf(5, 6, 9, 10, 11));
  const Piece marks = document(3, 1, "111");
  EXPECT_EQ(labelling.count(marks), 0u);
  EXPECT_THAT(Masked(labelling, marks, 0).labels, ElementsAre(kMaskedLmNone, kMaskedLmNone, kMaskedLmNone));
}

// A step of such documents only would make an update for a loss without labels.
TEST_F(MaskedTokensTest, OmitsDocumentsOfSpecialTokens) {
  folder_.write("a.bin", {3, 20}, std::nullopt, 2);  // tokens 2 to 4, then 5 to 24
  const auto labelling = std::make_shared<MaskedTokens>(vocabulary(), 0.15, 3, 0);
  const PackedSequences packed(folder_.open({"a.bin"}), 32, LongDocuments::cut, labelling,
                               PackedSequences::Pack::at_once);
  EXPECT_EQ(packed.packing()->without_label, 1u);
  EXPECT_EQ(packed.packing()->pieces, 1u);
  EXPECT_EQ(packed.labels(0), 3u);
  const Piece late = document(40, 0, "0000000000000000000000000000000000000001");
  EXPECT_EQ(MaskedTokens(vocabulary(), 0.15, 3, 0).most(late), 1u) << "a word after the first tokens that are examined";
}

// A run is planned before it reads: the index's labels are an upper bound, and the rows of the loss have room for them.
TEST_F(MaskedTokensTest, SequencesPredictTheirNumberOfLabels) {
  EXPECT_TRUE(rc::check([this] {
    auto lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange(1, 40)));
    lengths.push_back(12);  // contains words, because documents of special tokens are refused
    folder_.write("a.bin", lengths);
    const auto labelling = std::make_shared<MaskedTokens>(vocabulary(), 0.15, 3, 0);
    const PackedSequences packed(folder_.open({"a.bin"}), 32, LongDocuments::cut, labelling,
                                 PackedSequences::Pack::at_once);
    for (std::uint64_t s = 0; s < packed.size(); ++s)
      for (const std::uint64_t epoch : {0, 1}) {
        std::vector<std::uint32_t> tokens(32), positions(32), loss_rows(packed.max_labels());
        std::vector<std::int32_t> labels(32);
        std::vector<RowRange> documents(32);
        const Rows rows{tokens, labels, positions, documents, loss_rows};
        packed.fill(s, epoch, rows);
        const std::vector<std::int32_t> whole = labels;
        take_labelled(rows);
        const auto count = packed.labels(s);
        RC_ASSERT(count <= loss_rows.size());
        std::size_t at = 0;
        for (std::uint32_t row = 0; row < 32; ++row) {
          if (whole[row] == kMaskedLmNone) continue;
          RC_ASSERT(loss_rows[at] == row);
          RC_ASSERT(labels[at++] == whole[row]);
        }
        RC_ASSERT(at == count);
        for (; at < 32; ++at) RC_ASSERT(labels[at] == kMaskedLmNone);
      }
  }));
}

TEST_F(MaskedTokensTest, RefusesTokenizersWithoutAMask) {
  Workload workload;
  workload.recipe.training.objective = models::Objective::masked_lm;
  const auto refused = [&](const std::vector<std::string>& names, const auto& words) {
    EXPECT_FAILURE(labelling_of(workload)(folder_.open(names), 0), Exit::usage, words);
  };
  folder_.write("good.bin", {3});
  folder_.mask_token = 5;
  folder_.write("other.bin", {3});
  refused({"good.bin", "other.bin"},
          AllOf(HasSubstr("other.bin"),
                HasSubstr("mask tokens differ (4 and 5): tokenize both again with the same tokenizer")));
  folder_.mask_token.reset();
  folder_.write("none.bin", {3});
  refused({"none.bin"}, AllOf(HasSubstr("none.bin"), HasSubstr("made"),
                              HasSubstr("mask_token of its tokenizer_config.json, [MASK] or <mask>")));
  folder_.special_tokens.reset();
  folder_.write("old.bin", {3});
  refused({"old.bin"}, AllOf(HasSubstr("old.bin"), HasSubstr("tokenize it again with strata tokenize")));
}

class MaskedRun : public testing::Test {
 protected:
  MaskedRun() {
    folder_.mask_token = 2;
    folder_.special_tokens = {0, 1, 2};
    std::vector<std::uint64_t> lengths;
    for (std::uint64_t i = 0; i < 60; ++i) lengths.push_back(1 + i * i % 23);  // some above the sequence of 16
    folder_.write("a.bin", lengths);
    folder_.folder().write("config.json", R"({"model_type":"bert","architectures":["BertForMaskedLM"],"vocab_size":130,
      "hidden_size":40,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":72,
      "max_position_embeddings":20,"type_vocab_size":2})");
  }
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    const std::string folder = folder_.folder().path().string();
    std::vector<std::string> all = {"model.path=" + folder,
                                    "model.init=random",
                                    "data.train=" + folder + "/a.bin",
                                    "data.seq_len=16",
                                    "training.micro_batch_size=2",
                                    "training.max_steps=12",
                                    "optimizer.learning_rate=2e-3",
                                    fmt::format("training.gradient_accumulation_steps={}", 4 / ranks)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  TokenFolder folder_{130};
};

TEST_F(MaskedRun, SameBitsOverRanksStagesTiersThreadsTilesAndRecomputation) {
  const Trained first = train_in_threads(std::nullopt, sets(1), 1);
  EXPECT_TRUE(first.memory_as_planned);
  std::set<std::uint64_t> labels;
  for (const StepReport& step : first.steps) labels.insert(step.labels);
  EXPECT_GT(labels.size(), 1u) << "steps with equal numbers of labels would show little";
  struct Variant {
    std::vector<std::string> sets;
    std::size_t tile_bytes = 0;
  };
  const std::vector<Variant> variants = {
      {{"zero.stage=0"}},
      {{"zero.stage=3", "training.recompute=block"}},
      {{"zero.stage=2", "zero.optimizer=host", "device.threads=3"}},
      {{"zero.stage=3", "memory.prefetch=0"}, 512},
      {{"zero.stage=3", "zero.parameters=host", "zero.optimizer=host", "memory.order=vertical"}},
  };
  for (const int ranks : {1, 2, 4})
    for (const Variant& variant : variants) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, variant.sets.back()));
      const Trained trained = train_in_threads(std::nullopt, sets(ranks, variant.sets), ranks, {}, variant.tile_bytes);
      EXPECT_EQ(trained.loss_hex, first.loss_hex);
      EXPECT_EQ(trained.weights_hash, first.weights_hash);
    }
}

// The loss takes only the chosen rows. Over all rows, most of which do not count, it is the same except for the
// rounding of sums of other shapes.
TEST_F(MaskedRun, OtherRowsDoNotAffectTheLoss) {
  const auto run = [&](bool few) {
    Workload workload = open_workload(load_recipe(std::nullopt, sets(1, {"training.precision=fp32"})));
    resolve_workload(workload, false);
    EXPECT_GT(workload.data.loss_rows, 0u);
    EXPECT_LT(workload.data.loss_rows, 16u);
    if (!few) workload.data.loss_rows = 0;
    std::vector<StepReport> steps;
    comm::run_threads(1, [&](comm::World& world) {
      const Job job = make_job(workload, 1, capacity_of(workload.recipe.memory, 1));
      EXPECT_EQ(job.model->batch.loss_rows > 0, few);
      Trainer trainer(job, world, 1);
      trainer.load_initial_weights(1);
      while (!trainer.done()) steps.push_back(trainer.step(false));
    });
    return steps;
  };
  const auto few = run(true), all = run(false);
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].labels, all[i].labels);
    EXPECT_NEAR(few[i].loss, all[i].loss, 1e-5 * all[i].loss);
    EXPECT_NEAR(few[i].grad_norm, all[i].grad_norm, 1e-4 * all[i].grad_norm);
  }
}

// Otherwise the end of a run would offer to continue texts with an encoder.
TEST(ObjectiveTest, OnlyCausalModelsGenerate) {
  for (const auto& [objective, generating] : {std::pair{models::Objective::causal_lm, true},
                                              {models::Objective::masked_lm, false},
                                              {models::Objective::sequence_classification, false},
                                              {models::Objective::token_classification, false}})
    EXPECT_EQ(generates(objective), generating) << models::name_of(objective);
}

}  // namespace
}  // namespace strata::runtime

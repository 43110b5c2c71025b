#include "runtime/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <set>

#include "device/ops/losses/losses.h"
#include "models/batch.h"
#include "runtime/data/sequences/stream_sequences.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class BatchesTest : public testing::Test {
 protected:
  // A file with the tokens first, first + 1, ...
  TokenFile counting(const std::string& name, std::uint16_t first, std::size_t count) {
    std::vector<std::uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return {folder_.write(name, {reinterpret_cast<const char*>(tokens.data()), 2 * count}), 60000};
  }
  // 10 tokens make 3 sequences of 3, with the tenth as the last label; 6 tokens make one, 3 none, and 4 one.
  std::vector<TokenFile> files() {
    std::vector<TokenFile> out;
    out.push_back(counting("a.bin", 0, 10));
    out.push_back(counting("b.bin", 100, 6));
    out.push_back(counting("c.bin", 200, 3));
    out.push_back(counting("d.bin", 300, 4));
    return out;
  }
  // Batches of a single stream of these files.
  Batches stream(std::int64_t seq_len, std::int64_t micro_batch_size, DataOrder order, std::uint64_t seed) {
    std::vector<Source> sources;
    sources.push_back({full_sequences(files(), seq_len)});
    return {std::move(sources), seq_len, micro_batch_size, order, seed};
  }
  tests::ScratchFolder folder_;
};

// A step needs its number of labels before its first backward, including those of other ranks' micro-batches.
class CountedOnce final : public Labelling {
 public:
  std::uint32_t most(const Piece& piece) const override { return piece.rows; }
  bool exact() const override { return false; }
  std::uint32_t count(const Piece& piece) const override {
    counted += piece.rows;
    return static_cast<std::uint32_t>(1 + piece.begin % 3);
  }
  void fill(const Piece&, std::uint64_t, const Rows&) const override {}
  mutable std::uint64_t counted = 0;
};

TEST_F(BatchesTest, CountsAStepsLabelsWithoutReadingTokensAgain) {
  const auto labelling = std::make_shared<CountedOnce>();
  auto sequences = full_sequences(files(), 3, labelling);
  EXPECT_GE(sequences->index_bytes(), 5 * sizeof(std::uint32_t));
  std::vector<std::byte> planned(sequences->index_bytes());
  std::pmr::monotonic_buffer_resource memory(planned.data(), planned.size(), std::pmr::null_memory_resource());
  sequences->keep_in(&memory);
  EXPECT_EQ(labelling->counted, 15u);
  std::vector<Source> sources;
  sources.push_back({std::move(sequences)});
  const Batches batches(std::move(sources), 3, 2, DataOrder::sequential, 1);
  EXPECT_EQ(batches.labels(0), 1u + 1);  // of a.bin: those at 0 and 3
  EXPECT_EQ(batches.labels(1), 1u + 1);  // at 6, and b.bin's
  for (std::uint64_t k = 0; k < 50; ++k) (void)batches.labels(k);
  EXPECT_EQ(labelling->counted, 15u);
}

TEST_F(BatchesTest, CountsOnlyWhatAnEvaluationReads) {
  const auto labelling = std::make_shared<CountedOnce>();
  auto sequences = every_label(files(), 3, labelling, 2);
  sequences->keep_in(std::pmr::get_default_resource());
  EXPECT_EQ(labelling->counted, 6u);
  EXPECT_EQ(sequences->labels(1), 1u);
}

// A sequence's first row has the set with the sequence's number in its file.
class SetOfSequence final : public Labelling {
 public:
  // Set i contains the class 40 i + shift.
  explicit SetOfSequence(int shift) : column_(ClassSets(90)) {
    for (int i = 0; i < 3; ++i) column_.push_back(column_.sets()->add(std::vector<std::int32_t>{40 * i + shift}));
  }
  std::uint32_t most(const Piece&) const override { return 1; }
  LabelColumn* column() override { return &column_; }
  void fill(const Piece& piece, std::uint64_t, const Rows& own) const override {
    std::fill(own.labels.begin(), own.labels.end(), device::kIgnoredLabel);
    own.labels[0] = column_[piece.document];
  }

 private:
  LabelColumn column_;
};

// In training each source has its own sets. An evaluation has them too.
TEST_F(BatchesTest, SetsOfClassesFollowTheirRows) {
  std::vector<Source> sources;
  for (const int shift : {0, 5})
    sources.push_back({full_sequences(files(), 3, std::make_shared<SetOfSequence>(shift))});
  const Batches batches(std::move(sources), 3, 2, DataOrder::sequential, 1);
  const DisjointSequences evaluated(every_label(files(), 3, std::make_shared<SetOfSequence>(0)), 3, 2);
  const models::BatchShape shape{.tokens = 6, .loss_rows = 4, .class_words = 3};
  std::vector<std::byte> memory(shape.bytes());
  const Rows rows = shape.rows(memory.data());
  const auto expect = [&](std::uint64_t b, std::size_t label) {
    std::vector<std::uint32_t> words(3);
    words[label / 32] = 1u << label % 32;
    EXPECT_EQ(rows.loss_rows[b], 3 * b);
    EXPECT_THAT(rows.class_sets.subspan(3 * b, 3), testing::ElementsAreArray(words)) << "class " << label;
  };
  for (std::uint64_t k = 0; k < 5; ++k) {
    batches.fill(k, rows);
    for (std::uint64_t b = 0; b < 2; ++b) {
      const Batches::Place place = batches.sequence_at(2 * k + b);
      expect(b, 40 * (place.sequence < 3 ? place.sequence : 0) + 5 * place.source);
    }
  }
  const std::vector<std::size_t> numbers = {0, 1, 2, 0, 1, 0};
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    if (i % 2 == 0) evaluated.fill(i / 2, rows);
    expect(i % 2, 40 * numbers[i]);
  }
}

struct BatchesFilled {
  std::vector<std::uint32_t> tokens, positions;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents;
  BatchesFilled(const Batches& batches, std::uint64_t k, std::size_t elements)
      : tokens(elements), positions(elements), labels(elements), documents(elements) {
    batches.fill(k, {tokens, labels, positions, documents});
  }
};

TEST_F(BatchesTest, SequentialOrderCutsFilesInTurn) {
  const Batches batches = stream(3, 2, DataOrder::sequential, 0);
  EXPECT_EQ(batches.sequences(), 5u);
  const BatchesFilled first(batches, 0, 6), second(batches, 1, 6), wrapped(batches, 2, 6);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(first.labels, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(first.documents, Each(device::RowRange{0, 3}));
  EXPECT_THAT(second.tokens, ElementsAre(6, 7, 8, 100, 101, 102));
  EXPECT_THAT(second.labels, ElementsAre(7, 8, 9, 101, 102, 103));
  EXPECT_THAT(wrapped.tokens, ElementsAre(300, 301, 302, 0, 1, 2));
  EXPECT_THAT(wrapped.labels, ElementsAre(301, 302, 303, 1, 2, 3));
  EXPECT_EQ(batches.labels(7), 6u);
}

TEST_F(BatchesTest, PaddingHasNoPosition) {
  const Batches batches = stream(3, 2, DataOrder::sequential, 0);
  std::vector<std::uint32_t> tokens(6), positions(6);
  std::vector<std::int32_t> labels(6);
  std::vector<device::RowRange> documents(6);
  batches.fill(0, {.tokens = tokens, .labels = labels, .positions = positions, .documents = documents, .padding = 4});
  EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(positions, ElementsAre(1, 2, 3, 1, 0, 2));
}

TEST_F(BatchesTest, ShuffleTakesEverySequenceOncePerEpoch) {
  const Batches batches = stream(3, 2, DataOrder::shuffle, 11), other = stream(3, 2, DataOrder::shuffle, 12);
  std::vector<std::uint64_t> first_epochs, of_other;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 5; ++i) {
      seen.insert(batches.sequence_at(5 * epoch + i).sequence);
      first_epochs.push_back(batches.sequence_at(5 * epoch + i).sequence);
      of_other.push_back(other.sequence_at(5 * epoch + i).sequence);
    }
    EXPECT_EQ(seen.size(), 5u);
    EXPECT_EQ(*seen.rbegin(), 4u);
  }
  EXPECT_NE(first_epochs, of_other);
  const std::vector<std::uint64_t> one(first_epochs.begin(), first_epochs.begin() + 5);
  EXPECT_NE(one, std::vector<std::uint64_t>(first_epochs.begin() + 5, first_epochs.begin() + 10));
  // Micro-batch k holds positions 2k and 2k + 1, whatever the micro-batch size was before.
  const BatchesFilled batch(batches, 3, 6);
  const Batches single = stream(3, 1, DataOrder::shuffle, 11);
  EXPECT_EQ(BatchesFilled(single, 6, 3).tokens,
            std::vector<std::uint32_t>(batch.tokens.begin(), batch.tokens.begin() + 3));
  EXPECT_EQ(BatchesFilled(single, 7, 3).tokens,
            std::vector<std::uint32_t>(batch.tokens.begin() + 3, batch.tokens.end()));
}

TEST_F(BatchesTest, RefusesDataWithoutASequence) {
  EXPECT_FAILURE(stream(10, 1, DataOrder::shuffle, 0), Exit::usage,
                 testing::AllOf(HasSubstr("data.seq_len = 10"), HasSubstr("11 tokens"), HasSubstr("has 10")));
}

TEST(PermutationTest, IsAPermutation) {
  const bool held = rc::check("every value once", [] {
    const auto size = *rc::gen::inRange<std::uint64_t>(1, 3000);
    const Permutation permutation(size, *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::inRange<std::uint64_t>(0, 9));
    std::vector<bool> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      RC_ASSERT(permutation[i] < size);
      RC_ASSERT(!seen[permutation[i]]);
      seen[permutation[i]] = true;
    }
  });
  EXPECT_TRUE(held);
}

TEST(PermutationTest, NeverChanges) {
  // Part of the numerics contract: different values change every run. A second implementation, in Python, has the same.
  const Permutation small(7, 0, 0), large(std::uint64_t{1} << 40, 1, 2);
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 7; ++i) values.push_back(small[i]);
  EXPECT_THAT(values, ElementsAre(4, 0, 3, 1, 5, 6, 2));
  EXPECT_EQ(large[0], 73141747135u);
  EXPECT_EQ(large[123456789], 286772854470u);
}

TEST(PermutationTest, SpreadsEvenly) {
  // Each quarter of the files provides a quarter of the first quarter of an epoch, within 5 standard deviations of a
  // hypergeometric distribution (n = 4,000 of 16,000: deviation 24).
  const Permutation permutation(16000, 5, 3);
  int quarters[4] = {};
  for (std::uint64_t i = 0; i < 4000; ++i) ++quarters[permutation[i] / 4000];
  for (const int n : quarters) EXPECT_NEAR(n, 1000, 120);
}

std::vector<std::size_t> first(const std::vector<double>& weights, std::uint64_t count) {
  const Mix mix(weights);
  std::vector<std::size_t> out;
  for (std::uint64_t p = 0; p < count; ++p) out.push_back(mix.at(p).source);
  return out;
}

// Part of the numerics contract: different values change every run. A second implementation, in Python, has the same.
TEST(MixTest, NeverChanges) {
  EXPECT_THAT(first({2.5}, 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(first({1, 1}, 6), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(first({0.7, 0.2, 0.1}, 10), ElementsAre(0, 1, 0, 0, 2, 0, 0, 0, 1, 0));
  const auto far = Mix(std::vector{0.7, 0.2, 0.1}).at(123'456'789'012'345);
  EXPECT_EQ(far.source, 2u);
  EXPECT_EQ(far.index, 12'345'678'906'983u);
}

TEST(MixTest, CountsItsSequences) {
  const bool held = rc::check("each source's index counts up, and shares are kept at every position", [] {
    const auto weights = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(
        rc::gen::map(rc::gen::inRange(1, 1000), [](int x) { return x / 100.0; })));
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Mix mix(weights);
    std::vector<std::uint64_t> taken(weights.size());
    for (std::uint64_t p = 0; p < 500; ++p) {
      for (std::size_t s = 0; s < weights.size(); ++s) {
        RC_ASSERT(mix.count(s, p) == taken[s]);
        RC_ASSERT(std::abs(static_cast<double>(taken[s]) - static_cast<double>(p) * weights[s] / sum) <=
                  0.5 * static_cast<double>(s + 1) + 1e-6);  // weights are accurate to 2^-31
      }
      const Mix::Place place = mix.at(p);
      RC_ASSERT(place.index == taken[place.source]);
      ++taken[place.source];
    }
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace strata::runtime

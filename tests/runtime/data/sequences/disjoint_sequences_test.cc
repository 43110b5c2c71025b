#include <gmock/gmock.h>

#include <numeric>

#include "runtime/data/sequences/stream_sequences.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class DisjointSequencesTest : public testing::Test {
 protected:
  // A file with the tokens first, first + 1, ...
  TokenFile counting(const std::string& name, std::uint16_t first, std::size_t count) {
    std::vector<std::uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return {folder_.write(name, {reinterpret_cast<const char*>(tokens.data()), 2 * count}), 60000};
  }
  tests::ScratchFolder folder_;
};

struct DisjointSequencesFilled {
  std::vector<std::uint32_t> tokens, positions;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents;
  DisjointSequencesFilled(const DisjointSequences& data, std::uint64_t k, std::size_t elements)
      : tokens(elements, 7), positions(elements, 7), labels(elements, 7), documents(elements) {
    data.fill(k, {tokens, labels, positions, documents});
  }
};

TEST_F(DisjointSequencesTest, GivesEveryLabelOnceInOrder) {
  std::vector<TokenFile> files;
  files.push_back(counting("a.bin", 0, 9));    // labels 1 .. 8: sequences of 3, 3 and 2
  files.push_back(counting("b.bin", 100, 1));  // none
  files.push_back(counting("c.bin", 200, 4));  // one whole sequence
  const DisjointSequences data(every_label(std::move(files), 3), 3, 2);
  EXPECT_EQ(data.sequences(), 4u);
  EXPECT_EQ(data.micro_batches(), 2u);
  EXPECT_EQ(data.labels(), 11u);
  const DisjointSequencesFilled first(data, 0, 6), second(data, 1, 6), after(data, 2, 6);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(first.labels, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(second.tokens, ElementsAre(6, 7, 0, 200, 201, 202));
  EXPECT_THAT(second.labels, ElementsAre(7, 8, -100, 201, 202, 203));
  EXPECT_THAT(second.positions, ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(after.tokens, Each(0u)) << "after the end";
  EXPECT_THAT(after.labels, Each(-100));
  const device::RowRange shorter{0, 2}, none{}, whole{0, 3};
  EXPECT_THAT(second.documents, ElementsAre(shorter, shorter, none, whole, whole, whole))
      << "missing tokens belong to no document: nothing attends to them";
}

TEST_F(DisjointSequencesTest, PaddingHasNoPosition) {
  std::vector<TokenFile> files;
  files.push_back(counting("a.bin", 4, 7));
  const DisjointSequences data(every_label(std::move(files), 3), 3, 2);
  std::vector<std::uint32_t> tokens(6), positions(6);
  std::vector<std::int32_t> labels(6);
  std::vector<device::RowRange> documents(6);
  data.fill(0, {.tokens = tokens, .labels = labels, .positions = positions, .documents = documents, .padding = 5});
  EXPECT_THAT(tokens, ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(positions, ElementsAre(1, 0, 2, 1, 2, 3));
}

TEST_F(DisjointSequencesTest, AFileShorterThanASequenceIsOne) {
  std::vector<TokenFile> files;
  files.push_back(counting("a.bin", 0, 2));
  const DisjointSequences data(every_label(std::move(files), 16), 16, 4);
  EXPECT_EQ(data.sequences(), 1u);
  EXPECT_EQ(data.labels(), 1u);
  EXPECT_EQ(DisjointSequencesFilled(data, 0, 64).labels[0], 1);
}

TEST_F(DisjointSequencesTest, RefusesDataWithNothingToPredict) {
  std::vector<TokenFile> files;
  files.push_back(counting("a.bin", 0, 1));
  EXPECT_FAILURE(DisjointSequences(every_label(std::move(files), 4), 4, 1), Exit::usage, HasSubstr("data.validation"));
}

}  // namespace
}  // namespace strata::runtime

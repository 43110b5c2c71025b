#include "runtime/data/open_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data/data_facts.h"
#include "runtime/data/sequences/stream_sequences.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class OpenDataTest : public testing::Test {
 protected:
  Recipe recipe(std::vector<std::string> sets) const {
    sets.insert(sets.begin(), {"model.preset=tiny-gpt2", "data.seq_len=8", "training.micro_batch_size=2"});
    return load_recipe(std::nullopt, sets);
  }
  std::string path(const std::string& name) const { return (folder_.folder().path() / name).string(); }
  Batches open(const Recipe& from) {
    return open_training_data(from, {60000, [](std::span<const TokenFile>) {}, fingerprints_});
  }
  tests::TokenFolder folder_;
  std::vector<comm::FileFingerprint> fingerprints_;
};

TEST_F(OpenDataTest, AMaskMeansDocumentsUnlessTheRecipeSaysOtherwise) {
  folder_.write("plain.bin", {9, 9});
  folder_.write("masked.bin", {9, 9}, "001000000001000000");
  const auto resolved = [&](const std::vector<std::string>& sets) {
    DataFacts facts;
    resolve_data(recipe(sets), facts, false, {});
    return facts.packing;
  };
  EXPECT_EQ(resolved({"data.train=" + path("plain.bin")}), Packing::stream);
  EXPECT_EQ(resolved({"data.train=" + path("masked.bin")}), Packing::documents);
  EXPECT_EQ(resolved({"data.train=" + path("plain.bin"), "data.validation=" + path("masked.bin")}), Packing::documents);
  EXPECT_EQ(resolved({"data.train=" + path("plain.bin"), "data.packing=documents"}), Packing::documents);
  EXPECT_EQ(resolved({"data.train=" + path("gone.bin")}), Packing::stream) << "opening the file reports that";
  EXPECT_FAILURE(open(recipe({"data.train=" + path("masked.bin"), "data.packing=stream"})), Exit::usage,
                 AllOf(HasSubstr("masked.bin has a mask"), HasSubstr("\"documents\"")));
}

// A run's counts, for streams and packed documents, whether or not the data were opened before.
TEST_F(OpenDataTest, CountsTheSequencesOfAnEpoch) {
  folder_.write("a.bin", {9, 20});
  folder_.write("b.bin", {30});
  for (const char* packing : {"stream", "documents"}) {
    const std::vector<std::string> sets = {
        fmt::format("data.train=[{{files='{}'}}, {{files='{}'}}]", path("a.bin"), path("b.bin")),
        std::string("data.packing=") + packing};
    const Recipe r = recipe(sets);
    DataFacts facts;
    OpenedData opened = resolve_data(r, facts, false, {});
    EXPECT_EQ(training_sequences(r, facts.packing, std::move(opened), 60000), open(r).sequences()) << packing;
  }
  const Recipe gone = recipe({"data.train=" + path("gone.bin")});
  EXPECT_EQ(training_sequences(gone, Packing::stream, {}, 60000), std::nullopt);
  EXPECT_EQ(training_sequences(recipe({}), Packing::stream, {}, 60000), std::nullopt);
}

TEST_F(OpenDataTest, MixesSourcesByWeight) {
  folder_.write("a.bin", {8, 8, 8});
  folder_.write("b.bin", {8, 8, 8, 8, 8}, std::nullopt, 1000);
  const Recipe r =
      recipe({fmt::format("data.train=[{{files='{}', weight=3}}, {{files='{}'}}]", path("a.bin"), path("b.bin")),
              "data.packing=documents"});
  const Batches batches = open(r);
  EXPECT_EQ(fingerprints_.size(), 2u);
  EXPECT_EQ(batches.sequences(), 8u);
  std::vector<std::uint64_t> of_a, of_b;
  for (std::uint64_t position = 0; position < 24; ++position) {
    const auto [source, sequence, epoch] = batches.sequence_at(position);
    (source == 0 ? of_a : of_b).push_back(sequence);
  }
  ASSERT_EQ(of_a.size(), 18u);
  EXPECT_EQ(batches.taken(0, 12), 18u);
  EXPECT_EQ(batches.taken(1, 12), 6u);
  for (std::size_t epoch = 0; epoch < 6; ++epoch) {  // each source goes over its own once an epoch
    std::vector<std::uint64_t> one(of_a.begin() + 3 * epoch, of_a.begin() + 3 * epoch + 3);
    std::sort(one.begin(), one.end());
    EXPECT_THAT(one, ElementsAre(0, 1, 2));
  }
  EXPECT_EQ(batches.labels(0), 14u);
  const auto lines = describe_data(batches, r, 12);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0],
              AllOf(HasSubstr("a.bin: 3 sequences of 3 documents, 0.0% of positions unused, 75.0% of the run, "
                              "6.00 epochs")));
  EXPECT_THAT(data_json(batches, r, 12),
              AllOf(HasSubstr("\"taken\":18,\"share\":0.750000,\"epochs\":6.000000"), HasSubstr("\"documents\":5")));
}

TEST_F(OpenDataTest, TheStartReportsCutAndDroppedDocuments) {
  folder_.write("a.bin", {20, 1, 5, 3});
  const auto line = [&](const char* longer) {
    const Recipe r =
        recipe({"data.train=" + path("a.bin"), "data.packing=documents", std::string("data.long=") + longer});
    return describe_data(open(r), r, 4)[0];
  };
  EXPECT_EQ(
      line("cut"),
      "data: 4 sequences of 4 documents, 12.5% of positions unused, 1 document longer than 8 tokens split, 1 document "
      "without trainable tokens left out, 2.00 epochs");
  EXPECT_EQ(
      line("drop"),
      "data: 1 sequence of 4 documents, 0.0% of positions unused, 1 document longer than 8 tokens dropped, 1 document "
      "without trainable tokens left out, 8.00 epochs");
}

TEST_F(OpenDataTest, TheStartReportsTheFilesOfASource) {
  for (const char* name : {"a.bin", "b.bin", "c.bin", "d.bin"}) folder_.write(name, {8});
  const Recipe r = recipe({fmt::format("data.train=[{{files=['{}', '{}', '{}']}}, {{files='{}'}}]", path("a.bin"),
                                       path("b.bin"), path("c.bin"), path("d.bin")),
                           "data.packing=documents"});
  const auto lines = describe_data(open(r), r, 4);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("a.bin and 2 more: 3 sequences"), HasSubstr("d.bin: 1 sequence of")));
}

// Labels whose number depends on the tokens. Counts the rows for which it is called.
class Counting final : public Labelling {
 public:
  explicit Counting(std::uint64_t& rows) : rows_(rows) {}
  std::uint32_t most(const Piece&) const override { return 1; }
  bool exact() const override { return false; }
  std::uint32_t count(const Piece& piece) const override {
    rows_ += piece.rows;
    return 1;
  }
  void fill(const Piece&, std::uint64_t, const Rows&) const override {}

 private:
  std::uint64_t& rows_;
};

// A run that evaluates 3 sequences reads only these, from a file that would take minutes to read.
TEST_F(OpenDataTest, ReadsOnlyEvaluatedSequences) {
  folder_.write("t.bin", {8, 8});
  folder_.write("v.bin", std::vector<std::uint64_t>(2 * 65536, 5));
  for (const char* packing : {"documents", "stream"})
    for (const bool evaluates : {true, false}) {
      SCOPED_TRACE(packing);
      const Recipe r = recipe({"data.train=" + path("t.bin"), "data.validation=" + path("v.bin"), "evaluation.every=1",
                               "evaluation.max_sequences=3", std::string("data.packing=") + packing});
      DataFacts facts{.loss_rows = 1};
      std::uint64_t of_training = 0, of_validation = 0;
      const MakeLabelling make = [&](std::span<const TokenFile>, std::uint64_t stream) {
        return std::make_shared<Counting>(stream == kValidationStream ? of_validation : of_training);
      };
      auto opened = resolve_data(r, facts, evaluates, make);
      EXPECT_LT(facts.validation_index_bytes, 3u * 65536 * 12) << "of one window of two";
      const auto data = open_validation_data(r, {60000, [](std::span<const TokenFile>) {}, fingerprints_},
                                             std::move(opened.validation));
      EXPECT_GT(of_validation, 0u);
      EXPECT_LE(of_validation, 3u * 8);
      const DisjointSequences sequences(
          open_validation_data(
              r, {60000, [](std::span<const TokenFile>) {}, fingerprints_, std::pmr::get_default_resource(), make}),
          8, 2, max_validation_sequences(r));
      EXPECT_EQ(sequences.sequences(), 3u);
      EXPECT_LE(of_validation, 2 * 3u * 8);
    }
}

TEST_F(OpenDataTest, PacksValidationDataTheSameWay) {
  folder_.write("v.bin", {4, 5, 3}, "011111111111");
  const Recipe r = recipe({"data.validation=" + path("v.bin")});
  const auto first = [&](std::uint64_t most) {
    return DisjointSequences(open_validation_data(r, {60000, [](std::span<const TokenFile>) {}, fingerprints_}), 8, 2,
                             most);
  };
  EXPECT_EQ(first(kAllSequences).sequences(), 2u);
  EXPECT_EQ(first(kAllSequences).labels(), 9u);
  EXPECT_EQ(first(1).sequences(), 1u);
  EXPECT_EQ(first(1).labels(), 6u);
}

}  // namespace
}  // namespace strata::runtime

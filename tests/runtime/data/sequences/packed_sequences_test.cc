#include "runtime/data/sequences/packed_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "device/ops/losses/losses.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::runtime {
namespace {

using device::RowRange;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::TokenFolder;

using Pack = PackedSequences::Pack;

constexpr std::int32_t kNone = device::kIgnoredLabel;

struct Filled {
  std::vector<std::uint32_t> tokens, positions;
  std::vector<std::int32_t> labels;
  std::vector<RowRange> documents;
  Filled(const PackedSequences& packed, std::uint64_t sequence, std::size_t rows)
      : tokens(rows, 7), positions(rows, 7), labels(rows, 7), documents(rows, RowRange{7, 7}) {
    packed.fill(sequence, 0, {tokens, labels, positions, documents});
  }
};

TEST(PackedSequencesTest, DocumentsShareSequences) {
  const TokenFolder folder;
  folder.write("a.bin", {3, 6, 2});                  // tokens 0-2, 3-8, 9-10
  folder.write("b.bin", {4, 1}, std::nullopt, 100);  // 100-103; one without a label
  const PackedSequences packed(folder.open({"a.bin", "b.bin"}), 8, LongDocuments::cut, {}, Pack::at_once);
  ASSERT_EQ(packed.size(), 2u);
  const Filled first(packed, 0, 8), second(packed, 1, 8);
  EXPECT_THAT(first.tokens, ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(first.labels, ElementsAre(4, 5, 6, 7, 8, kNone, 10, kNone));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1));
  const RowRange a{0, 6}, b{6, 8};
  EXPECT_THAT(first.documents, ElementsAre(a, a, a, a, a, a, b, b));
  EXPECT_EQ(packed.labels(0), 6u);
  EXPECT_THAT(second.tokens, ElementsAre(100, 101, 102, 103, 0, 1, 2, 0));
  EXPECT_THAT(second.labels, ElementsAre(101, 102, 103, kNone, 1, 2, kNone, kNone));
  EXPECT_THAT(second.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 0));
  const RowRange c{0, 4}, d{4, 7}, none{0, 0};
  EXPECT_THAT(second.documents, ElementsAre(c, c, c, c, d, d, d, none));
  EXPECT_EQ(packed.packing()->documents, 5u);
  EXPECT_EQ(packed.packing()->without_label, 1u);
  EXPECT_EQ(packed.packing()->rows, 15u);
}

TEST(PackedSequencesTest, AMaskSelectsLabels) {
  const TokenFolder folder;
  // The bit of a document's first token belongs to no row, because no token precedes it in the document.
  folder.write("a.bin", {4, 3, 2}, "101001100");
  const PackedSequences packed(folder.open({"a.bin"}), 4, LongDocuments::cut, {}, Pack::at_once);
  ASSERT_EQ(packed.size(), 2u);
  EXPECT_THAT(Filled(packed, 0, 4).labels, ElementsAre(kNone, 2, kNone, kNone));
  EXPECT_THAT(Filled(packed, 1, 4).labels, ElementsAre(5, 6, kNone, kNone));
  EXPECT_EQ(packed.labels(0), 1u);
  EXPECT_EQ(packed.labels(1), 2u);
  EXPECT_EQ(packed.packing()->without_label, 1u);
}

TEST(PackedSequencesTest, LongDocumentsAreCutDroppedOrRefused) {
  const TokenFolder folder;
  folder.write("a.bin", {9, 3, 5});
  const auto open = [&](LongDocuments longer) {
    return PackedSequences(folder.open({"a.bin"}), 4, longer, {}, Pack::at_once);
  };
  const PackedSequences cut = open(LongDocuments::cut);  // 4, 4 and 1 that has no label; 3; 4 and 1
  EXPECT_EQ(cut.packing()->cut, 2u);
  EXPECT_EQ(cut.packing()->pieces, 4u);
  EXPECT_EQ(cut.packing()->without_label, 2u);
  ASSERT_EQ(cut.size(), 4u);
  EXPECT_THAT(Filled(cut, 0, 4).labels, ElementsAre(1, 2, 3, 4)) << "a piece's last token keeps its label";
  EXPECT_THAT(Filled(cut, 1, 4).labels, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(Filled(cut, 1, 4).positions, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Filled(cut, 2, 4).labels, ElementsAre(13, 14, 15, 16));
  const PackedSequences drop = open(LongDocuments::drop);
  EXPECT_EQ(drop.packing()->dropped, 2u);
  ASSERT_EQ(drop.size(), 1u);
  EXPECT_THAT(Filled(drop, 0, 4).tokens, ElementsAre(9, 10, 11, 0));
  EXPECT_FAILURE(open(LongDocuments::refuse), Exit::usage,
                 AllOf(HasSubstr("2 of 3 documents are longer than data.seq_len = 4, the longest of 9 tokens"),
                       HasSubstr("data.long")));
}

TEST(PackedSequencesTest, RefusesDataWithNothingToLearn) {
  const TokenFolder folder;
  folder.write("a.bin", {1, 1, 1});
  EXPECT_FAILURE(PackedSequences(folder.open({"a.bin"}), 4, LongDocuments::cut, {}, Pack::at_once), Exit::usage,
                 AllOf(HasSubstr("none of the 3 documents in"), HasSubstr("a.bin"), HasSubstr("a label that counts")));
}

TEST(PackedSequencesTest, ReportsThatAllDocumentsAreTooLong) {
  const TokenFolder folder;
  folder.write("one.bin", {9});
  folder.write("two.bin", {9, 6});
  folder.write("short.bin", {9, 1, 1});
  const auto open = [&](const char* name) {
    return PackedSequences(folder.open({name}), 4, LongDocuments::drop, {}, Pack::at_once);
  };
  EXPECT_FAILURE(open("one.bin"), Exit::usage,
                 AllOf(HasSubstr("the only document in"), HasSubstr("is longer than data.seq_len = 4"),
                       HasSubstr("leaves it out: raise data.seq_len")));
  EXPECT_FAILURE(open("two.bin"), Exit::usage,
                 AllOf(HasSubstr("each of the 2 documents in"), HasSubstr("leaves them all out")));
  EXPECT_FAILURE(open("short.bin"), Exit::usage,
                 AllOf(HasSubstr("none of the 3 documents in"), HasSubstr("a label that counts"),
                       HasSubstr("1 of them is longer than data.seq_len = 4 and left out")));
}

TEST(PackedSequencesTest, GivesEveryRowOnce) {
  const bool held = rc::check("each document's tokens once, in order, with the labels of the file", [] {
    const TokenFolder folder;
    const auto lengths =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(1, 40)));
    std::uint64_t count = 0;
    for (const std::uint64_t length : lengths) count += length;
    RC_PRE(count > 2);
    const bool masked = *rc::gen::arbitrary<bool>();
    std::string mask;
    for (std::uint64_t i = 0; i < count; ++i) mask += *rc::gen::inRange(0, 3) == 0 ? '1' : '0';
    folder.write("a.bin", lengths, masked ? std::optional<std::string_view>(mask) : std::nullopt);
    const auto seq_len = *rc::gen::inRange<std::uint32_t>(1, 50);
    const auto counts = [&](std::uint64_t token) { return !masked || mask[token] == '1'; };
    // For every token, its label or none.
    std::vector<std::int32_t> wanted(count, kNone);
    std::uint64_t at = 0, labels = 0;
    for (const std::uint64_t length : lengths) {
      for (std::uint64_t i = at; i + 1 < at + length; ++i)
        if (counts(i + 1)) wanted[i] = static_cast<std::int32_t>(i + 1);
      at += length;
    }
    for (const std::int32_t label : wanted) labels += label != kNone;
    RC_PRE(labels > 0);
    const PackedSequences packed(folder.open({"a.bin"}), seq_len, LongDocuments::cut, {}, Pack::at_once);
    std::map<std::uint32_t, int> seen;
    std::uint64_t found = 0;
    for (std::uint64_t s = 0; s < packed.size(); ++s) {
      const Filled filled(packed, s, seq_len);
      std::uint64_t of_sequence = 0;
      for (std::uint32_t row = 0; row < seq_len; ++row) {
        const RowRange document = filled.documents[row];
        if (document.end == 0) {
          RC_ASSERT(filled.labels[row] == kNone);
          continue;
        }
        RC_ASSERT(document.first <= row && row < document.end && document.end <= seq_len);
        RC_ASSERT(filled.positions[row] == row - document.first);
        RC_ASSERT(filled.tokens[row] == filled.tokens[document.first] + row - document.first);
        RC_ASSERT(filled.labels[row] == wanted[filled.tokens[row]]);
        RC_ASSERT(++seen[filled.tokens[row]] == 1);
        of_sequence += filled.labels[row] != kNone;
      }
      RC_ASSERT(of_sequence > 0u);
      RC_ASSERT(of_sequence == packed.labels(s));
      found += of_sequence;
    }
    RC_ASSERT(found == labels);
    RC_ASSERT(seen.size() == packed.packing()->rows);
    // Tokens that are left out have no label that counts.
    for (std::uint64_t i = 0; i < count; ++i)
      if (!seen.contains(static_cast<std::uint32_t>(i))) RC_ASSERT(wanted[i] == kNone);
  });
  EXPECT_TRUE(held);
}

// The index states its memory in advance and uses no other memory.
TEST(PackedSequencesTest, TheIndexStaysWithinItsPlannedMemory) {
  const bool held = rc::check("whatever the lengths", [] {
    const TokenFolder folder;
    const auto most = *rc::gen::element<std::uint64_t>(3, 12, 60);
    const auto lengths =
        *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(2, most)));
    folder.write("a.bin", lengths);
    const auto seq_len = *rc::gen::inRange<std::uint32_t>(1, 40);
    const auto open = [&](Pack pack) {
      return PackedSequences(folder.open({"a.bin"}), seq_len, LongDocuments::cut, {}, pack);
    };
    const PackedSequences at_once = open(Pack::at_once);
    for (const Pack pack : {Pack::in_its_memory, Pack::at_once}) {
      PackedSequences packed = open(pack);
      std::vector<std::byte> planned(packed.index_bytes());
      std::pmr::monotonic_buffer_resource memory(planned.data(), planned.size(), std::pmr::null_memory_resource());
      packed.keep_in(&memory);
      RC_ASSERT(packed.packing()->pieces == at_once.packing()->pieces);
      RC_ASSERT(packed.size() == at_once.size());
      for (std::uint64_t s = 0; s < packed.size(); ++s) {
        const Filled a(packed, s, seq_len), b(at_once, s, seq_len);
        RC_ASSERT(a.tokens == b.tokens);
        RC_ASSERT(a.labels == b.labels);
        RC_ASSERT(packed.labels(s) == at_once.labels(s));
      }
    }
  });
  EXPECT_TRUE(held);
}

// Every second row of a piece is a label, but only count() says so. Records the tokens that it is asked about.
class Spy final : public Labelling {
 public:
  std::uint32_t most(const Piece& piece) const override {
    looked += piece.rows;
    return piece.rows;
  }
  bool exact() const override { return false; }
  std::uint32_t count(const Piece& piece) const override {
    counted += piece.rows;
    return (piece.rows + 1) / 2;
  }
  void fill(const Piece& piece, std::uint64_t, const Rows& own) const override {
    for (std::uint32_t i = 0; i < piece.rows; ++i) own.labels[i] = i % 2 == 0 ? 1 : kNone;
  }
  mutable std::uint64_t looked = 0, counted = 0;
};

// They are counted once at opening, whatever is queried later.
TEST(PackedSequencesTest, CountsTokenDependentLabelsOnce) {
  const TokenFolder folder;
  folder.write("a.bin", {3, 6, 2, 9, 5});
  folder.write("b.bin", {4, 1}, std::nullopt, 100);
  for (const auto pack : {Pack::at_once, Pack::in_its_memory}) {
    const auto spy = std::make_shared<Spy>();
    PackedSequences packed(folder.open({"a.bin", "b.bin"}), 8, LongDocuments::cut, spy, pack);
    packed.keep_in(std::pmr::get_default_resource());
    std::uint64_t labels = 0;
    for (std::uint64_t s = 0; s < packed.size(); ++s) {
      const Filled filled(packed, s, 8);
      labels += packed.labels(s);
      EXPECT_EQ(packed.labels(s), static_cast<std::uint64_t>(std::ranges::count(filled.labels, 1)));
    }
    EXPECT_EQ(labels, 2u + 3 + 1 + 4 + 1 + 3 + 2 + 1);
    EXPECT_EQ(spy->counted, 30u);
    EXPECT_EQ(spy->looked, pack == Pack::at_once ? 30u : 60u);
    EXPECT_EQ(packed.max_labels(), 8u) << "of the head's rows: known without counting";
  }
}

// Only the windows that hold these sequences are read, and only their own tokens are counted. They are the same
// sequences as in the whole file.
TEST(PackedSequencesTest, TheFirstSequencesOfAHugeFileDoNotDependOnItsRest) {
  const TokenFolder folder;
  std::vector<std::uint64_t> lengths(3 * 65536);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = 1 + i % 7;
  folder.write("a.bin", lengths);
  const auto open = [&](std::shared_ptr<Spy> spy, Pack pack, std::uint64_t most) {
    auto packed =
        std::make_unique<PackedSequences>(folder.open({"a.bin"}), 8, LongDocuments::cut, std::move(spy), pack, most);
    packed->keep_in(std::pmr::get_default_resource());
    return packed;
  };
  const auto all = open(std::make_shared<Spy>(), Pack::at_once, kAllSequences);
  for (const auto pack : {Pack::at_once, Pack::in_its_memory}) {
    const auto spy = std::make_shared<Spy>();
    const auto some = open(spy, pack, 10);
    EXPECT_EQ(some->packing()->documents, 65536u);
    EXPECT_LT(some->size(), all->size() / 2);
    EXPECT_LE(spy->counted, 80u);
    for (std::uint64_t s = 0; s < 10; ++s) {
      EXPECT_EQ(Filled(*some, s, 8).tokens, Filled(*all, s, 8).tokens);
      EXPECT_EQ(some->labels(s), all->labels(s));
    }
    const auto second = std::make_shared<Spy>();
    const auto more = open(second, pack, some->size() + 1);
    EXPECT_GE(more->size(), some->size() + 1);
    EXPECT_EQ(more->packing()->documents, 2u * 65536);
  }
}

TEST(PackedSequencesTest, WindowsLimitSharedSequences) {
  const TokenFolder folder;
  std::vector<std::uint64_t> lengths(65536, 5);
  lengths.push_back(3);  // fits next to each of them, but belongs to the next window
  folder.write("a.bin", lengths);
  const PackedSequences packed(folder.open({"a.bin"}), 8, LongDocuments::cut, {}, Pack::at_once);
  EXPECT_EQ(packed.size(), 65537u);
  EXPECT_EQ(Filled(packed, 65535, 8).tokens[5], 0u) << "nothing next to it";
}

// Ten million documents should open in 3 s, so a million in 0.3 s. Three times that would mean a worse complexity.
// Measures processor time, because other tests run at the same time.
TEST(PackedSequencesTest, OpensAMillionDocumentsQuickly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take several times as long";
#endif
  const TokenFolder folder;
  std::vector<std::uint64_t> lengths(1'000'000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = 2 + i * 7919 % 37;
  folder.write("a.bin", lengths);
  auto files = folder.open({"a.bin"});
  const std::clock_t start = std::clock();
  const PackedSequences packed(std::move(files), 128, LongDocuments::cut, {}, Pack::at_once);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(packed.packing()->pieces, lengths.size());
  EXPECT_LT(seconds, 0.9);
}

}  // namespace
}  // namespace strata::runtime

#include "device/numeric/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

namespace strata::device {
namespace {

using Words = std::array<std::uint32_t, 4>;
Words words_of(const PhiloxBlock& b) {
  return {b.word[0], b.word[1], b.word[2], b.word[3]};
}

// Random123's kat_vectors for philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(words_of(philox4x32({{0, 0, 0, 0}}, 0, 0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(words_of(philox4x32({{f, f, f, f}}, f, f)), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words_of(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Streams of different seeds, sites and micro-batches, also where only high bits differ, start differently; and the
// counter is the documented one: it is part of the numerics.
TEST(Philox, StreamsAndCounter) {
  const RandomStream base{.seed = 1, .micro_batch = 2, .site = 3};
  EXPECT_EQ(words_of(random_counter(base, (5ull << 32) + 7)), (Words{7, 5, 3, 2}));
  RandomStream later = base;
  later.micro_batch += 9ull << 32;
  EXPECT_EQ(words_of(random_counter(later, (5ull << 32) + 7)), (Words{7, (9u << 16) + 5, 3, 2}));
  std::vector<std::uint32_t> first;
  for (const RandomStream& s : {base, later, RandomStream{1ull << 40 | 1, 2, 3}, RandomStream{1, 3, 3},
                                RandomStream{1, 2, 4}, RandomStream{2, 2, 3}})
    first.push_back(random_word(s, 0));
  for (std::size_t i = 0; i < first.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]) << i << " and " << j;
}

TEST(Philox, WordsAreBlocksSideBySide) {
  const RandomStream s{.seed = 42, .micro_batch = 1, .site = 7};
  std::uint32_t words[12];
  random_words(s, 5, 3, words);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(words[i], random_word(s, 20 + i));
}

TEST(Philox, DropThreshold) {
  EXPECT_EQ(drop_threshold(0.0f), 0u);
  EXPECT_EQ(drop_threshold(0.5f), 0x80000000u);
  EXPECT_EQ(drop_threshold(std::bit_cast<float>(0x3f7fffffu)), 0xffffff00u);  // the largest float below 1
}

}  // namespace
}  // namespace strata::device

#pragma once
#include <cstdint>

namespace strata::device {

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// Number i of a stream is word i % 4 of the block whose counter is
//   {low 32 bits of i/4, (i/4 >> 32) + (micro_batch >> 32 << 16), site, low 32 bits of micro_batch}
// under the key {low, high 32 bits of the seed}. There is one stream per seed, site and micro-batch, without state, and
// without overlap for i < 2^50 and micro_batch < 2^48. Both twins include this file; the functions must inline into the
// kernels of either.
struct RandomStream {
  std::uint64_t seed;
  std::uint64_t micro_batch;
  std::uint32_t site;
};

struct PhiloxBlock {
  std::uint32_t word[4];
};

inline constexpr std::uint32_t kPhiloxMultiply0 = 0xD2511F53u, kPhiloxMultiply1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

[[gnu::always_inline]] constexpr PhiloxBlock philox4x32(PhiloxBlock c, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultiply0} * c.word[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultiply1} * c.word[2];
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(p0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return c;
}

// The counter of block `block` (numbers 4 * block .. 4 * block + 3).
[[gnu::always_inline]] constexpr PhiloxBlock random_counter(const RandomStream& s, std::uint64_t block) {
  return {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>((block >> 32) + (s.micro_batch >> 32 << 16)),
           s.site, static_cast<std::uint32_t>(s.micro_batch)}};
}

[[gnu::always_inline]] constexpr PhiloxBlock random_block(const RandomStream& s, std::uint64_t block) {
  return philox4x32(random_counter(s, block), static_cast<std::uint32_t>(s.seed),
                    static_cast<std::uint32_t>(s.seed >> 32));
}

// Number `index` of the stream, uniform over 32 bits. Four neighbours cost as much as one: see random_words.
[[gnu::always_inline]] constexpr std::uint32_t random_word(const RandomStream& s, std::uint64_t index) {
  return random_block(s, index / 4).word[index % 4];
}

// words[0 .. 4 * blocks) = the numbers of `blocks` consecutive blocks.
[[gnu::always_inline]] constexpr void random_words(const RandomStream& s, std::uint64_t first_block,
                                                   std::uint64_t blocks, std::uint32_t* words) {
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const PhiloxBlock block = random_block(s, first_block + b);
    for (int i = 0; i < 4; ++i) words[4 * b + i] = block.word[i];
  }
}

// An element is kept if its number is at least this; p is in [0, 1).
[[gnu::always_inline]] constexpr std::uint32_t drop_threshold(float p) {
  return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0);
}

// The known answer of the reference implementation (Random123, kat_vectors).
static_assert(philox4x32({{0, 0, 0, 0}}, 0, 0).word[0] == 0x6627e8d5u);

}  // namespace strata::device

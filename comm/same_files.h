#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace strata::comm {

// What a rank sees of one thing that all ranks must see alike: a file, or a tensor of one.
struct Seen {
  std::string name;   // "/data/a.bin (data.train)"
  std::string print;  // "1200 bytes, hash 0123456789abcdef": other bytes have another, as far as it covers them
};

// How much of a long run of bytes a print covers. Up to `whole` bytes: all of them. Beyond: `blocks` blocks of
// `block_bytes`, spread evenly from the first byte to the last, so that a long file costs no more than a short one.
struct Coverage {
  std::size_t whole, blocks, block_bytes;
};
// Files: 4 MiB of what is too long to be read at start (docs/architecture.md, "The same files").
inline constexpr Coverage kOfFile{std::size_t{1} << 30, 256, std::size_t{16} << 10};
// Tensors of a model with so many bytes of them. Up to 1 GiB: all bytes. Beyond: 16 KiB of each, as there are hundreds.
Coverage of_tensors(std::size_t all_bytes);

// Starts reading what the print of mapped bytes covers.
void ask_for(std::span<const std::byte> bytes, const Coverage& coverage);
std::string print_of(std::span<const std::byte> bytes, const Coverage& coverage);

// A file as this rank sees it, under the name "PATH (KEY)"; one that cannot be opened has the reason as its print.
Seen look_at(const std::filesystem::path& file, const std::string& key);

// Collective: throws AgreedError{failed} that names a rank which sees something else than most, or than the
// lowest if as many see each. Lists are sent only then: before, 16 hex digits per rank.
void require_same(std::span<const Seen> mine, comm::World& world);

}  // namespace strata::comm

#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace strata::comm {

// One rank's view of something that all ranks must see identically: a file, or a tensor in a file.
struct FileFingerprint {
  std::string name;  // "/data/a.bin (data.train)"
  // "1200 bytes, hash 0123456789abcdef": within its coverage, different bytes have a different fingerprint
  std::string fingerprint;
};

// How much of a long range of bytes a fingerprint covers. Up to `whole` bytes: all of them. Beyond that: `blocks`
// blocks of `block_bytes`, spread evenly from the first byte to the last, so a long file costs no more than a file of
// `whole` bytes.
struct Coverage {
  std::size_t whole, blocks, block_bytes;
};
// For files: 4 MiB of a file that is too long to be read completely at the start (docs/architecture.md, "The same
// files").
inline constexpr Coverage kOfFile{std::size_t{1} << 30, 256, std::size_t{16} << 10};
// The bytes that a fingerprint covers in tensors of a model with this many bytes: all of them up to 1 GiB; beyond that,
// 16 KiB of each tensor, because there are hundreds.
Coverage of_tensors(std::size_t all_bytes);

// Starts reading the mapped bytes that a fingerprint covers.
void ask_for(std::span<const std::byte> bytes, const Coverage& coverage);
std::string fingerprint_of(std::span<const std::byte> bytes, const Coverage& coverage);

// A file as this rank sees it, named "PATH (KEY)". If it cannot be opened, the fingerprint is the reason.
FileFingerprint fingerprint_file(const std::filesystem::path& file, const std::string& key);

// Collective: throws an AgreedError{failed} that names a rank whose view differs from most ranks', or from the lowest
// rank's in a tie. Ranks first exchange 16 hex digits each, and send their lists only if those differ.
void require_same(std::span<const FileFingerprint> mine, comm::World& world);

}  // namespace strata::comm

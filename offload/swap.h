#pragma once
// offload/ moves one tier's bytes to drives and back. It does not depend on plans or tensors, and uses the rank only in
// messages. The runtime sees only Swap (this header). Below it are an unnamed file per drive (swap_file.h), blocks of 1
// MiB striped over drives, an I/O thread with a queue per drive (drive.h), and three Submitters (submitter.h):
// io_uring, libaio and a thread pool. probe() determines at the start which of them works; io_options.h holds the
// settings that a recipe may force.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/abort.h"
#include "offload/drive.h"
#include "offload/io_options.h"
#include "offload/swap_file.h"

namespace strata::offload {

inline constexpr std::size_t kMaxDrives = 32;
inline constexpr std::size_t kMaxRanges = 8;

// `size` bytes of memory, and [offset, offset + size) of a tier.
struct Range {
  std::uint64_t offset;
  std::byte* memory;
  std::size_t size;
};

// Moves the bytes of up to kMaxRanges ranges, all in flight together, between memory and a tier that is striped over
// `drives`, and waits for them. Any thread may call it, and calls may overlap. Throws Error{failed} with file, offset
// and reason. Throws Aborted within half a second of the abort, even if requests never complete; their memory must then
// stay mapped.
void transfer(std::span<const std::unique_ptr<Drive>> drives, bool write, std::span<const Range> ranges,
              const AbortToken& abort);

// One rank's bytes of a tier, over all its drives. Each drive has an unnamed, preallocated file, a ring and an I/O
// thread; requests of 1 MiB are striped over the drives (ZeRO-Infinity, section 6.3). Offsets and sizes are multiples
// of 4096, and memory is aligned to 4096. Owns files, rings and threads. No call may be in progress when it is
// destroyed.
class Swap {
 public:
  // All bytes are zero. Probes every drive and takes the best mode that works there. Throws Error{usage} for a folder
  // that cannot be used or a forced mode that does not work, Error{does_not_fit} if a folder has too little space,
  // otherwise Error{failed}.
  Swap(const IoOptions& options, std::uint64_t bytes, int rank, const AbortToken& abort);
  ~Swap();
  Swap(Swap&&) noexcept;
  Swap& operator=(Swap&&) noexcept;

  // Call it before the first transfer. Requests inside `staging`, which must outlive the swap, then skip the kernel's
  // page look-up if the mode supports that. If the system refuses, plain requests are used and describe() says why; if
  // the recipe forces registration, throws Error{usage}.
  void register_memory(std::span<std::byte> staging);

  // Block the caller until everything has moved. Several threads may call concurrently if their ranges do not overlap
  // or all of them read. Throw an Error{failed} with file, offset and reason, or Aborted soon after the abort token is
  // set.
  void read(std::uint64_t offset, std::span<std::byte> to);
  void write(std::uint64_t offset, std::span<const std::byte> from);
  // The same for up to kMaxRanges ranges, all in flight together.
  void read(std::span<const Range> ranges);
  void write(std::span<const Range> ranges);

  // Bytes moved by successful calls since construction.
  std::uint64_t bytes_read() const;
  std::uint64_t bytes_written() const;

  struct DriveReport {
    std::filesystem::path folder;
    IoMode mode;
    std::vector<std::string> refused;  // for each better mode, why it is not used and what would help
    std::vector<std::string> notes;    // notes about the folder
  };
  std::vector<DriveReport> drives() const;
  // "io_uring, O_DIRECT, registered buffers", then reasons and notes; one text per drive if they differ.
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The drive of a swap file in the best mode that works there. For each better mode: why it is not used, and what would
// help.
struct ProbeResult {
  std::unique_ptr<Drive> drive;
  IoMode mode;
  std::vector<std::string> refused;
};

// Tries the modes that `options` leaves open, the best first: O_DIRECT before buffered; io_uring, libaio, threads;
// registered buffers before plain ones. Each writes a block, reads it back and compares. `options` outlives the drive.
// Throws Error{usage} with the reasons if a forced mode does not work, or Error{failed} if no mode does.
ProbeResult probe(SwapFile& file, const IoOptions& options, const AbortToken& abort);

// The reason why registering memory failed, and the remedy.
std::string registration_refused(int error);

// Keeps an XXH3 hash in memory of every page written to a tier: 1/512 of its bytes. It hashes pages rather than blocks,
// because a read may cover parts of several writes. Thread-safe for calls whose ranges do not overlap.
class Checksums {
 public:
  explicit Checksums(std::uint64_t bytes);
  void record(std::uint64_t offset, std::span<const std::byte> bytes);
  // Offset of the first page whose bytes differ from those recorded. Pages never recorded pass.
  std::optional<std::uint64_t> mismatch(std::uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  std::vector<std::uint64_t> pages_;  // 0: never recorded
};

}  // namespace strata::offload

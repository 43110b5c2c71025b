#pragma once
// offload/ moves one tier's bytes to drives and back. It knows nothing of plans, tensors or ranks beyond a number for
// messages. Swap (here) is all that the runtime sees. Below it: a nameless file per drive (swap_file.h), blocks of 1
// MiB striped over drives (stripes.h), an I/O thread with a queue per drive (drive.h), and a Submitter (submitter.h),
// of which io_uring, libaio and a thread pool are three. ladder.h finds at the start which of them works; io_options.h
// is what the recipe may force.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/abort.h"
#include "offload/io_options.h"
#include "offload/transfer.h"

namespace strata::offload {

// One tier's bytes of one rank over all its drives: a nameless, preallocated file, a ring and an I/O thread a drive,
// 1 MiB requests striped over them (ZeRO-Infinity, section 6.3). Offsets and sizes are multiples of 4096 and memory is
// aligned to 4096. Owns files, rings and threads. No call may be under way when it is destroyed.
class Swap {
 public:
  // All zeros. Probes every drive and takes the best rung that works there. Throws Error{usage} for a folder that
  // cannot be used or a forced rung that does not work, Error{does_not_fit} if a folder has too little space,
  // Error{failed}.
  Swap(const IoOptions& options, std::uint64_t bytes, int rank, const AbortToken& abort);
  ~Swap();
  Swap(Swap&&) noexcept;
  Swap& operator=(Swap&&) noexcept;

  // Before the first transfer: requests inside `staging`, which outlives the swap, take the short way where the rung
  // has one. If the system refuses, plain ones are used and describe() says why; Error{usage} if forced.
  void register_memory(std::span<std::byte> staging);

  // Block the caller until all is moved. Several threads at once, on ranges that do not meet if one writes. Throw
  // Error{failed} naming file, offset and reason, Aborted soon after the abort token is set.
  void read(std::uint64_t offset, std::span<std::byte> to);
  void write(std::uint64_t offset, std::span<const std::byte> from);
  // The same for up to kMostRanges ranges, all under way at once.
  void read(std::span<const Range> ranges);
  void write(std::span<const Range> ranges);

  // Since construction, by successful calls.
  std::uint64_t bytes_read() const;
  std::uint64_t bytes_written() const;

  struct DriveReport {
    std::filesystem::path folder;
    Rung rung;
    std::vector<std::string> refused;  // higher rungs: why not, and what would help
    std::vector<std::string> notes;    // of the folder
  };
  std::vector<DriveReport> drives() const;
  // "io_uring, O_DIRECT, registered buffers", then reasons and notes; drives that differ one after the other.
  std::string describe() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::offload

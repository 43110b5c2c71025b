#include "offload/swap.h"

#include <atomic>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "offload/checksums.h"
#include "offload/drive.h"
#include "offload/ladder.h"
#include "offload/stripes.h"
#include "offload/swap_file.h"
#include "offload/transfer.h"

namespace strata::offload {

struct Swap::Impl {
  IoOptions options;
  std::uint64_t bytes;
  const AbortToken& abort;
  std::vector<std::unique_ptr<SwapFile>> files;
  std::vector<std::unique_ptr<Drive>> drives;
  std::vector<Rung> rungs;
  std::vector<std::vector<std::string>> refused;
  std::optional<Checksums> checksums;
  std::atomic<std::uint64_t> bytes_read{0}, bytes_written{0};

  void check(const Range& range) const {
    STRATA_CHECK_EQ(range.offset % kPage, 0u);
    STRATA_CHECK_EQ(range.size % kPage, 0u);
    STRATA_CHECK_EQ(reinterpret_cast<std::uintptr_t>(range.memory) % kPage, 0u);
    STRATA_CHECK_LE(range.offset, bytes);
    STRATA_CHECK_LE(range.size, bytes - range.offset);
  }
  void compare(const Range& range) const {
    const auto wrong = checksums->mismatch(range.offset, {range.memory, range.size});
    if (!wrong) return;
    const std::size_t drive = *wrong / kBlock % drives.size();
    const BlockRange place = Stripes(*wrong, kPage, drive, drives.size()).next();
    fail(Exit::failed, "the bytes at offset {} of {} are not those that were written: the drive or its path is faulty",
         place.file_offset, files[drive]->name());
  }
};

Swap::Swap(const IoOptions& options, std::uint64_t bytes, int rank, const AbortToken& abort)
    : impl_(new Impl{.options = options, .bytes = bytes, .abort = abort}) {
  STRATA_CHECK_LT(0, options.queue_depth);
  Impl& self = *impl_;
  const std::size_t count = options.folders.size();
  if (count == 0)
    fail(Exit::usage,
         "memory.nvme is missing: set it to the folder of the nvme tier, or to a list with one folder per drive");
  if (count > kMostDrives) fail(Exit::usage, "memory.nvme names {} folders: at most {}", count, kMostDrives);
  // Open all files before the first probe: lack of space is reported at once.
  for (std::size_t d = 0; d < count; ++d) {
    // A drive may hold nothing of a small tier, but must still have room for the probe's block.
    const std::uint64_t share = std::max<std::uint64_t>(file_bytes(bytes, d, count), kBlock);
    self.files.push_back(std::make_unique<SwapFile>(options.folders[d], share, rank));
  }
  for (const auto& file : self.files) {
    Chosen chosen = climb(*file, self.options, abort);
    self.drives.push_back(std::move(chosen.drive));
    self.rungs.push_back(chosen.rung);
    self.refused.push_back(std::move(chosen.refused));
  }
  if (options.verify) self.checksums.emplace(bytes);
}

Swap::~Swap() = default;
Swap::Swap(Swap&&) noexcept = default;
Swap& Swap::operator=(Swap&&) noexcept = default;

void Swap::register_memory(std::span<std::byte> staging) {
  for (std::size_t d = 0; d < impl_->drives.size(); ++d) {
    if (!impl_->rungs[d].registered) continue;
    const int error = impl_->drives[d]->register_memory(staging);
    if (error == 0) continue;
    const std::string reason = registration_refused(error);
    if (impl_->options.registered)
      fail(Exit::usage, "{}: {} bytes of staging cannot be registered as requested: {}", impl_->files[d]->name(),
           staging.size(), reason);
    impl_->rungs[d].registered = false;
    impl_->refused[d].push_back(reason);
  }
}

void Swap::read(std::uint64_t offset, std::span<std::byte> to) {
  const Range range{offset, to.data(), to.size()};
  read({&range, 1});
}

void Swap::read(std::span<const Range> ranges) {
  for (const Range& range : ranges) impl_->check(range);
  transfer(impl_->drives, false, ranges, impl_->abort);
  for (const Range& range : ranges) {
    if (impl_->checksums) impl_->compare(range);
    impl_->bytes_read += range.size;
  }
}

void Swap::write(std::uint64_t offset, std::span<const std::byte> from) {
  // A write request only reads its memory. The kernel's interfaces have one pointer type for both directions.
  const Range range{offset, const_cast<std::byte*>(from.data()), from.size()};
  write({&range, 1});
}

void Swap::write(std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    impl_->check(range);
    if (impl_->checksums) impl_->checksums->record(range.offset, {range.memory, range.size});
  }
  transfer(impl_->drives, true, ranges, impl_->abort);
  for (const Range& range : ranges) impl_->bytes_written += range.size;
}

std::uint64_t Swap::bytes_read() const {
  return impl_->bytes_read;
}
std::uint64_t Swap::bytes_written() const {
  return impl_->bytes_written;
}

std::vector<Swap::DriveReport> Swap::drives() const {
  std::vector<DriveReport> reports;
  for (std::size_t d = 0; d < impl_->drives.size(); ++d)
    reports.push_back({impl_->files[d]->folder(), impl_->rungs[d], impl_->refused[d], impl_->files[d]->notes()});
  return reports;
}

std::string Swap::describe() const {
  std::vector<std::string> texts;
  const auto reports = drives();
  for (const DriveReport& report : reports) {
    std::string text = to_string(report.rung);
    for (const std::string& reason : report.refused) text += "; not used: " + reason;
    for (const std::string& note : report.notes) text += "; " + note;
    texts.push_back(std::move(text));
  }
  const bool alike = std::equal(texts.begin() + 1, texts.end(), texts.begin());
  if (alike && texts.size() > 1) return fmt::format("{} drives, {}", texts.size(), texts[0]);
  if (alike) return texts[0];
  std::string out;
  for (std::size_t d = 0; d < texts.size(); ++d)
    out += fmt::format("{}{}: {}", d == 0 ? "" : " | ", reports[d].folder.string(), texts[d]);
  return out;
}

}  // namespace strata::offload

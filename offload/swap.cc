#include "offload/swap.h"

#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/files/output_file.h"
#include "device/memory.h"
#include "offload/drive.h"
#include "offload/io_options.h"
#include "offload/swap_file.h"

namespace strata::offload {

struct Swap::Impl {
  IoOptions options;
  std::uint64_t bytes;
  const AbortToken& abort;
  std::vector<std::unique_ptr<SwapFile>> files;
  std::vector<std::unique_ptr<Drive>> drives;
  std::vector<IoMode> modes;
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
  if (count > kMaxDrives) fail(Exit::usage, "memory.nvme names {} folders: at most {}", count, kMaxDrives);
  // Opens all files before the first probe, so that lack of space is reported first.
  for (std::size_t d = 0; d < count; ++d) {
    // A drive may hold nothing of a small tier, but must still have room for the probe's block.
    const std::uint64_t share = std::max<std::uint64_t>(file_bytes(bytes, d, count), kBlock);
    self.files.push_back(std::make_unique<SwapFile>(options.folders[d], share, rank));
  }
  for (const auto& file : self.files) {
    ProbeResult chosen = probe(*file, self.options, abort);
    self.drives.push_back(std::move(chosen.drive));
    self.modes.push_back(chosen.mode);
    self.refused.push_back(std::move(chosen.refused));
  }
  if (options.verify) self.checksums.emplace(bytes);
}

Swap::~Swap() = default;
Swap::Swap(Swap&&) noexcept = default;
Swap& Swap::operator=(Swap&&) noexcept = default;

void Swap::register_memory(std::span<std::byte> staging) {
  for (std::size_t d = 0; d < impl_->drives.size(); ++d) {
    if (!impl_->modes[d].registered) continue;
    const int error = impl_->drives[d]->register_memory(staging);
    if (error == 0) continue;
    const std::string reason = registration_refused(error);
    if (impl_->options.registered)
      fail(Exit::usage, "{}: {} bytes of staging cannot be registered as requested: {}", impl_->files[d]->name(),
           staging.size(), reason);
    impl_->modes[d].registered = false;
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
    reports.push_back({impl_->files[d]->folder(), impl_->modes[d], impl_->refused[d], impl_->files[d]->notes()});
  return reports;
}

std::string Swap::describe() const {
  std::vector<std::string> texts;
  const auto reports = drives();
  for (const DriveReport& report : reports) {
    std::string text = to_string(report.mode);
    for (const std::string& reason : report.refused) text += "; not used: " + reason;
    for (const std::string& note : report.notes) text += "; " + note;
    texts.push_back(std::move(text));
  }
  const bool same = std::equal(texts.begin() + 1, texts.end(), texts.begin());
  if (same && texts.size() > 1) return fmt::format("{} drives, {}", texts.size(), texts[0]);
  if (same) return texts[0];
  std::string out;
  for (std::size_t d = 0; d < texts.size(); ++d)
    out += fmt::format("{}{}: {}", d == 0 ? "" : " | ", reports[d].folder.string(), texts[d]);
  return out;
}

namespace {

// The reason why a submitter could not be created, and the remedy.
std::string engine_refused(Engine engine, const std::system_error& error) {
  const int code = error.code().value();
  const std::string what = fmt::format("{}: {}", name_of(engine), error.what());
  if (engine == Engine::io_uring && (code == EPERM || code == EACCES)) {
    std::ifstream setting("/proc/sys/kernel/io_uring_disabled");
    int disabled = 0;
    if (setting >> disabled && disabled != 0)
      return what + fmt::format(" (kernel.io_uring_disabled is {}: set it to 0)", disabled);
    return what + " (forbidden by a seccomp filter: allow it, with Docker --security-opt seccomp=unconfined)";
  }
  if (code == ENOSYS) {
    return what + (engine == Engine::io_uring ? " (this kernel or sandbox does not offer it: Linux 5.6 or later does)"
                                              : " (this kernel or sandbox does not offer it)");
  }
  if (engine == Engine::io_uring && code == ENOMEM) return what + " (raise the limit of locked memory: ulimit -l)";
  if (engine == Engine::libaio && code == EAGAIN) return what + " (raise the sysctl fs.aio-max-nr)";
  return what;
}

// Fills the block that the probe writes. All its words differ, so that it cannot be confused with another place in the
// file.
void fill_pattern(std::span<std::byte> block, std::uint64_t seed) {
  for (std::size_t at = 0; at < block.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = (seed + at + 1) * 0x9e3779b97f4a7c15u;
    std::copy_n(reinterpret_cast<const std::byte*>(&word), sizeof(word), block.data() + at);
  }
}

// Writes a block, reads it back and compares; "" or what went wrong.
std::string try_block(std::unique_ptr<Drive>& drive, const SwapFile& file, std::uint64_t seed, device::Arena& memory,
                      const AbortToken& abort) {
  const std::size_t size = std::min<std::size_t>(kBlock, file.bytes());
  fill_pattern({memory.data(), size}, seed);
  try {
    const Range out{0, memory.data(), size}, back{0, memory.at(kBlock), size};
    transfer({&drive, 1}, true, {&out, 1}, abort);
    transfer({&drive, 1}, false, {&back, 1}, abort);
  } catch (const Error& error) {
    return error.what();
  }
  if (!std::equal(memory.data(), memory.data() + size, memory.at(kBlock)))
    return "the bytes read differ from those written";
  return "";
}

template <typename T>
std::vector<T> left_open(std::vector<T> all, const std::optional<T>& forced) {
  return forced ? std::vector<T>{*forced} : std::move(all);
}

}  // namespace

std::string registration_refused(int error) {
  if (error != ENOMEM && error != EPERM) return "registered buffers: " + error_text(error);
  rlimit limit{};
  std::string bytes = "unknown";
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    bytes = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024);
  return fmt::format(
      "registered buffers: {} (the limit of locked memory is {}: raise ulimit -l, with Docker --ulimit "
      "memlock=-1)",
      error_text(error), bytes);
}

ProbeResult probe(SwapFile& file, const IoOptions& options, const AbortToken& abort) {
  ProbeResult chosen;
  device::Arena memory(2 * kBlock);
  const auto refuse = [&](std::string reason) {
    if (std::find(chosen.refused.begin(), chosen.refused.end(), reason) == chosen.refused.end())
      chosen.refused.push_back(std::move(reason));
  };
  std::vector<Engine> unusable;
  std::uint64_t seed = 0;
  for (const bool direct : left_open<bool>({true, false}, options.direct)) {
    if (const int error = file.set_direct(direct); error != 0) {
      refuse(fmt::format("O_DIRECT: {}, of the file system {}: use one on a local drive", error_text(error),
                         file_system_of(file.folder())));
      continue;
    }
    for (const Engine engine : left_open<Engine>({Engine::io_uring, Engine::libaio, Engine::threads}, options.engine)) {
      // libaio carries out buffered requests one by one while they are submitted, so threads are better.
      if (engine == Engine::libaio && !direct && !options.engine) continue;
      const bool has_buffers = engine == Engine::io_uring;
      for (const bool registered : left_open<bool>({true, false}, options.registered)) {
        if (registered && !has_buffers) {
          if (options.registered) refuse(fmt::format("registered buffers: {} has none", name_of(engine)));
          continue;
        }
        if (std::find(unusable.begin(), unusable.end(), engine) != unusable.end()) continue;
        const IoMode mode{engine, direct, registered};
        try {
          chosen.drive = std::make_unique<Drive>(file, mode, options);
        } catch (const std::system_error& error) {
          unusable.push_back(engine);
          refuse(engine_refused(engine, error));
          continue;
        }
        if (registered) {
          if (const int error = chosen.drive->register_memory({memory.data(), 2 * kBlock}); error != 0) {
            refuse(registration_refused(error));
            continue;
          }
        }
        if (const std::string wrong = try_block(chosen.drive, file, ++seed << 32, memory, abort); !wrong.empty()) {
          refuse(fmt::format("{}: {}", to_string(mode), wrong));
          continue;
        }
        // Memory that has not been written reads as zeros.
        std::fill_n(memory.data(), kBlock, std::byte{});
        const Range zeros{0, memory.data(), std::min<std::size_t>(kBlock, file.bytes())};
        transfer({&chosen.drive, 1}, true, {&zeros, 1}, abort);
        if (registered) (void)chosen.drive->register_memory({});
        chosen.mode = mode;
        return chosen;
      }
    }
  }
  const bool forced = options.engine || options.direct || options.registered;
  fail(forced ? Exit::usage : Exit::failed, "{} cannot be read and written{}: {}", file.name(),
       forced ? " with the I/O settings in the recipe" : "", fmt::join(chosen.refused, "; "));
}

namespace {

std::uint64_t checksum_of(const std::byte* page) {
  const std::uint64_t sum = XXH3_64bits(page, kPage);
  return sum == 0 ? 1 : sum;
}

}  // namespace

Checksums::Checksums(std::uint64_t bytes) : pages_((bytes + kPage - 1) / kPage) {}

void Checksums::record(std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kPage)
    pages_[(offset + at) / kPage] = checksum_of(bytes.data() + at);
}

std::optional<std::uint64_t> Checksums::mismatch(std::uint64_t offset, std::span<const std::byte> bytes) const {
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    const std::uint64_t expected = pages_[(offset + at) / kPage];
    if (expected != 0 && expected != checksum_of(bytes.data() + at)) return offset + at;
  }
  return std::nullopt;
}

namespace {

using namespace std::chrono_literals;
// The interval at which a wait polls the abort token.
constexpr auto kPoll = 50ms;
// The time that requests in flight have to finish after an abort. Otherwise the kernel could write into reused memory.
constexpr auto kGrace = 250ms;

[[noreturn]] void report(const Failure& failure) {
  const std::string what = fmt::format("{} of {} bytes at offset {} of {} failed", failure.write ? "write" : "read",
                                       failure.size, failure.offset, failure.file->name());
  if (failure.error != 0) refused_write(what, failure.error);
  fail(Exit::failed, "{}: {}", what,
       failure.write ? "the drive accepts no more bytes" : "the file ends early: another program has truncated it");
}

}  // namespace

void transfer(std::span<const std::unique_ptr<Drive>> drives, bool write, std::span<const Range> ranges,
              const AbortToken& abort) {
  STRATA_CHECK_LE(drives.size(), kMaxDrives);
  STRATA_CHECK_LE(ranges.size(), kMaxRanges);
  abort.throw_if_set();
  Call call;
  std::array<Share, kMaxDrives * kMaxRanges> shares;
  std::array<Drive*, kMaxDrives * kMaxRanges> holders;  // the drive of each share
  std::size_t count = 0;
  for (const Range& range : ranges)
    for (std::size_t d = 0; d < drives.size(); ++d) {
      shares[count] = {&call, write, range.memory, {range.offset, range.size, d, drives.size()}};
      if (shares[count].ranges.empty()) continue;
      holders[count++] = drives[d].get();
    }
  call.shares = count;
  const auto each = [&](auto&& f) {
    for (std::size_t i = 0; i < count; ++i) f(*holders[i], shares[i]);
  };
  each([](Drive& drive, Share& share) { drive.start(share); });
  while (!call.wait_for(kPoll)) {
    if (!abort.is_set()) continue;
    each([](Drive& drive, Share& share) { drive.stop(share); });
    if (!call.wait_for(kGrace)) each([](Drive& drive, Share& share) { drive.abandon(share); });
    abort.throw_if_set();
  }
  if (const auto failure = call.failure()) report(*failure);
}

}  // namespace strata::offload

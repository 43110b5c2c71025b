#include "offload/transfer.h"

#include <array>
#include <chrono>

#include "base/error.h"
#include "base/files/output_file.h"

namespace strata::offload {
namespace {

using namespace std::chrono_literals;
// How often a wait polls the abort token.
constexpr auto kPoll = 50ms;
// How long requests in flight may still take after an abort: the kernel should not write into memory that is reused.
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

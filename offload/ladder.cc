#include "offload/ladder.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "device/memory.h"
#include "offload/transfer.h"

namespace strata::offload {
namespace {

// The reason why a submitter could not be made, and the remedy.
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
    return what + (engine == Engine::io_uring ? " (this kernel or sandbox has none: Linux 5.6 or later has)"
                                              : " (this kernel or sandbox has none)");
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

Chosen climb(SwapFile& file, const IoOptions& options, const AbortToken& abort) {
  Chosen chosen;
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
        const Rung rung{engine, direct, registered};
        try {
          chosen.drive = std::make_unique<Drive>(file, rung, options);
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
          refuse(fmt::format("{}: {}", to_string(rung), wrong));
          continue;
        }
        // Memory that has not been written reads as zeros.
        std::fill_n(memory.data(), kBlock, std::byte{});
        const Range zeros{0, memory.data(), std::min<std::size_t>(kBlock, file.bytes())};
        transfer({&chosen.drive, 1}, true, {&zeros, 1}, abort);
        if (registered) (void)chosen.drive->register_memory({});
        chosen.rung = rung;
        return chosen;
      }
    }
  }
  const bool forced = options.engine || options.direct || options.registered;
  fail(forced ? Exit::usage : Exit::failed, "{} cannot be read and written{}: {}", file.name(),
       forced ? " with the I/O settings in the recipe" : "", fmt::join(chosen.refused, "; "));
}

}  // namespace strata::offload

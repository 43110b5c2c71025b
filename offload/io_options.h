#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::offload {

class Submitter;

// Bytes of a request and of a stripe. A block lies on one drive, and moves in one request if a call covers it.
inline constexpr std::size_t kBlock = std::size_t{1} << 20;
// Offsets, sizes and memory are multiples of this. No drive sold today needs more for direct I/O.
inline constexpr std::size_t kPage = 4096;

// How requests reach the kernel, best first.
enum class Engine : std::uint8_t { io_uring, libaio, threads };
std::string_view name_of(Engine engine);

// One way to read and write a drive, which the probe may choose. `direct`: bypass the page cache (O_DIRECT).
// `registered`: io_uring's registered buffers and files.
struct IoMode {
  Engine engine = Engine::io_uring;
  bool direct = true;
  bool registered = true;
  bool operator==(const IoMode&) const = default;
};
// "io_uring, O_DIRECT, registered buffers".
std::string to_string(const IoMode& mode);

struct IoOptions {
  std::vector<std::filesystem::path> folders;  // one per drive; bytes are striped over them
  bool verify = false;  // keep a checksum of every page written, and compare it when the page is read
  // Each of these forces one property of the IoMode. For one that is not set, the probe takes the best value that
  // works.
  std::optional<Engine> engine;
  std::optional<bool> direct, registered;
  int queue_depth = 32;  // requests in flight per drive
  // For tests: wraps a drive's submitter, between the engine and the kernel.
  std::function<std::unique_ptr<Submitter>(std::unique_ptr<Submitter>, const IoMode&)> wrap;
};

}  // namespace strata::offload

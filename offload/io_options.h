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

// Bytes of a request and of a stripe: a block lies on one drive and is moved whole if a call covers it.
inline constexpr std::size_t kBlock = std::size_t{1} << 20;
// Offsets, sizes and memory are multiples of it: what direct I/O asks of every drive that is sold today.
inline constexpr std::size_t kPage = 4096;

// How requests are handed to the kernel, best first.
enum class Engine : std::uint8_t { io_uring, libaio, threads };
std::string_view name_of(Engine engine);

// One rung of the probe ladder. `direct`: past the page cache (O_DIRECT). `registered`: io_uring's buffers and files.
struct Rung {
  Engine engine = Engine::io_uring;
  bool direct = true;
  bool registered = true;
  bool operator==(const Rung&) const = default;
};
// "io_uring, O_DIRECT, registered buffers".
std::string to_string(const Rung& rung);

struct IoOptions {
  std::vector<std::filesystem::path> folders;  // one a drive; bytes are striped over them
  bool verify = false;                         // keep a checksum of every page written, compare when it is read
  // Each forces its part of the rung; if not set, the probe takes the best that works.
  std::optional<Engine> engine;
  std::optional<bool> direct, registered;
  int queue_depth = 32;  // requests in flight per drive
  // Between the engine and the kernel, for tests: what stands in for the submitter of a drive.
  std::function<std::unique_ptr<Submitter>(std::unique_ptr<Submitter>, const Rung&)> wrap;
};

}  // namespace strata::offload

#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace strata::text::jinja {

// An error during the rendering of a template. The interpreter adds the line.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
  template <typename First, typename... More>
  Fault(fmt::format_string<First, More...> format, First&& first, More&&... more)
      : std::runtime_error(fmt::format(format, std::forward<First>(first), std::forward<More>(more)...)) {}
};

// The limits of one rendering.
struct Limits {
  std::uint64_t steps = 50'000'000;              // nodes, and pieces of 64 bytes read or written
  std::uint64_t bytes = std::uint64_t{1} << 30;  // all texts and lists that the template creates, together
  int depth = 1000;                              // nested expressions, blocks and macros
};

// Counts operations on values against the limits. Code that traverses a value must count each node, because a few
// lists, each of which contains the next one twice, can have 2^40 leaves.
class Meter {
 public:
  explicit Meter(const Limits& limits = {}) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Throw Fault at a limit. Code that creates a text or list first calls take() for its bytes.
  void step(std::uint64_t steps = 1);
  void take(std::uint64_t bytes);
  // Like take(), for `times` times `bytes` bytes.
  void take(std::uint64_t times, std::uint64_t bytes);
  // Counts bytes that are read.
  void read(std::uint64_t bytes) { step(bytes / kPiece); }
  // Checks an unfinished text that has grown to this many bytes, which are counted when it is complete.
  void grown_to(std::uint64_t bytes) const;
  // Throws Fault at the depth limit. leave() reverses it.
  void enter();
  void leave() { --depth_; }

 private:
  static constexpr std::uint64_t kPiece = 64;

  const Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

}  // namespace strata::text::jinja

#pragma once
#include <cstdint>
#include <stdexcept>

namespace strata::text::jinja {

// An error while a template is rendered. The interpreter adds the line.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The limits of one rendering.
struct Limits {
  std::uint64_t steps = 50'000'000;              // nodes, and pieces of 64 bytes that are read or written
  std::uint64_t bytes = std::uint64_t{1} << 30;  // all texts and lists that the template makes, together
  int depth = 1000;                              // nested expressions, blocks and macros
};

// Counts operations on values against the limits. A few lists, each of which contains the next one twice, can have 2^40
// leaves, so code that traverses a value counts each node.
class Meter {
 public:
  explicit Meter(const Limits& limits = {}) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Throw Fault at a limit. Code that makes a text or list calls take() for its bytes first.
  void step(std::uint64_t steps = 1);
  void take(std::uint64_t bytes);
  // `times` times `bytes`.
  void take(std::uint64_t times, std::uint64_t bytes);
  // Counts bytes that are read.
  void read(std::uint64_t bytes) { step(bytes / kPiece); }
  // Checks an unfinished text that has reached this many bytes, which are counted when it is done.
  void grown_to(std::uint64_t bytes) const;
  // Throws Fault at the depth limit. leave() undoes it.
  void enter();
  void leave() { --depth_; }

 private:
  static constexpr std::uint64_t kPiece = 64;

  const Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

}  // namespace strata::text::jinja

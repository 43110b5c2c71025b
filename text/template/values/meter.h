#pragma once
#include <cstdint>
#include <stdexcept>

namespace strata::text::jinja {

// What goes wrong while a template is rendered, without its place: the interpreter adds the line.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How much one rendering may take before it is refused.
struct Limits {
  std::uint64_t steps = 50'000'000;              // nodes, and pieces of 64 bytes that are read or written
  std::uint64_t bytes = std::uint64_t{1} << 30;  // of texts and lists that the template makes, all together
  int depth = 1000;                              // expressions, blocks and macros in each other
};

// Counts what is done with values against the limits. A few lists that hold each other twice stand for 2^40 leaves, so
// whatever walks through a value counts each node of it.
class Meter {
 public:
  explicit Meter(const Limits& limits = {}) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Throw Fault at a limit. What makes a text or list asks for its bytes first.
  void step(std::uint64_t steps = 1);
  void take(std::uint64_t bytes);
  // `times` of `bytes` each.
  void take(std::uint64_t times, std::uint64_t bytes);
  // Bytes are read.
  void read(std::uint64_t bytes) { step(bytes / kPiece); }
  // A text in the making has come to this many bytes, which are taken when it is done.
  void grown_to(std::uint64_t bytes) const;
  // Throws Fault at the limit of depth; leave() undoes it.
  void enter();
  void leave() { --depth_; }

 private:
  static constexpr std::uint64_t kPiece = 64;

  const Limits limits_;
  std::uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

}  // namespace strata::text::jinja

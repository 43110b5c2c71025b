#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::runtime {

// A part of a tensor: in each dimension, `size` indices from `offset` on. `shape` is the whole tensor's shape, with a
// dimension possibly split into several, the slowest first: of a fused [n, 3 m] tensor, the same columns of each of the
// three parts are one box of [n, 3, m]. The box's elements are counted row-major, within the box.
struct Box {
  std::vector<std::uint64_t> shape, offset, size;

  static Box full(const std::vector<std::uint64_t>& shape);
  std::uint64_t elements() const;
  std::uint64_t of_tensor() const;  // elements of the whole tensor
  bool is_full() const { return size == shape; }
  bool overlaps(const Box& other) const;  // `other` has the same shape
  bool operator==(const Box&) const = default;
};

// True if `split` is `shape` with some dimensions split into several.
bool splits(const std::vector<std::uint64_t>& split, const std::vector<std::uint64_t>& shape);

// Elements [begin, end) of a box.
struct BoxRange {
  const Box& box;
  std::uint64_t begin, end;
};

// A box as runs of elements that are contiguous in the whole tensor. All runs have the same length, and come in the
// tensor's order.
class BoxRuns {
 public:
  explicit BoxRuns(const Box& box);
  std::uint64_t length() const { return length_; }
  std::uint64_t count() const { return count_; }
  // The element of the whole tensor where run i begins.
  std::uint64_t place(std::uint64_t i) const;
  // The first run from `i` on that ends after `element` of the whole tensor; count() if there is none.
  std::uint64_t first_after(std::uint64_t i, std::uint64_t element) const;

 private:
  struct Dimension {
    std::uint64_t size, stride;
  };
  std::vector<Dimension> outer_;  // the dimensions that runs count over, the slowest first
  std::uint64_t first_ = 0, length_ = 1, count_ = 1;
};

// Calls f(i, j, count) for each `count` contiguous elements that both ranges have, from element i of a's box and
// element j of b's box on. Both boxes belong to one tensor, but each may split its dimensions in its own way.
template <typename F>
void for_common(const BoxRange& a, const BoxRange& b, F&& f) {
  if (a.box == b.box) {
    const std::uint64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin < end) f(begin, begin, end - begin);
    return;
  }
  struct Side {
    const BoxRange& range;
    BoxRuns runs;
    std::uint64_t run;
    std::uint64_t begin = 0, place = 0, place_end = 0;  // the part of the run that is in the range

    explicit Side(const BoxRange& r) : range(r), runs(r.box), run(r.begin / runs.length()) { look(); }
    bool ended() const { return run * runs.length() >= range.end; }
    void look() {
      if (ended()) return;
      const std::uint64_t first = run * runs.length();
      begin = std::max(first, range.begin);
      place = runs.place(run) + (begin - first);
      place_end = place + (std::min(first + runs.length(), range.end) - begin);
    }
    void skip_to(std::uint64_t to) {
      run = runs.first_after(run + 1, to);
      look();
    }
  };
  Side x(a), y(b);
  while (!x.ended() && !y.ended()) {
    const std::uint64_t begin = std::max(x.place, y.place), end = std::min(x.place_end, y.place_end);
    if (begin < end) f(x.begin + (begin - x.place), y.begin + (begin - y.place), end - begin);
    if (x.place_end <= y.place_end)
      x.skip_to(y.place);
    else
      y.skip_to(x.place);
  }
}

}  // namespace strata::runtime

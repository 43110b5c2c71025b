#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace strata::runtime {

// A set of numbers in [0, size): insert, erase, and the smallest one from x on, in a few words each.
class NumberSet {
 public:
  explicit NumberSet(std::uint64_t size);
  void insert(std::uint64_t x);
  void erase(std::uint64_t x);
  // `size` if there is none.
  std::uint64_t next(std::uint64_t x) const;
  // The largest number; `size` if the set is empty.
  std::uint64_t last() const;

 private:
  std::uint64_t size_;
  std::vector<std::vector<std::uint64_t>> levels_;  // a bit for each number; then one for each word below
};

// Packs items into bins of one size. Part of the numerics contract: which items share a bin must never change.
//
// Best fit, decreasing (Johnson 1974): the longest item comes first, and of equal ones the one given first. It goes
// into the bin with the least sufficient room, and of equal ones into the bin that changed last. This wastes next to
// nothing, but fills one bin after the other with items of one length and one place in the file: a training step of a
// few such sequences is a poor sample of the data (docs/decisions/11-long-documents-are-spread.md). So the long items,
// three quarters of all, are spread first: each goes into the bin with the most room, over as few bins as could hold
// all of them. The others follow by best fit. If that needs over 1 bin in 200 more, best fit alone is used.
class BestFit {
 public:
  explicit BestFit(std::uint32_t room);

  struct Bins {
    std::vector<std::uint32_t> items;  // bin by bin: indices into `lengths`
    std::vector<std::uint32_t> ends;   // for each bin, in items
  };
  // lengths: from 1 to room. Valid until the next call.
  const Bins& pack(std::span<const std::uint32_t> lengths);

 private:
  std::uint32_t take_bin(std::uint32_t length, bool emptiest);
  void put_back(std::uint32_t bin);
  // Puts the sorted items into bins; the longest items, up to `spread` units of length in total, go to the emptiest of
  // the `first` bins.
  void place(std::uint32_t first, std::uint64_t spread);

  std::uint32_t room_;
  NumberSet rooms_;                    // the room left in each bin
  std::vector<std::uint32_t> newest_;  // by room: the bin that reached it last
  // By bin: the bin that reached the same room before it, and the room left.
  std::vector<std::uint32_t> before_, left_;
  std::vector<std::uint64_t> order_;
  std::vector<std::uint32_t> bin_of_, other_;
  Bins bins_;
};

}  // namespace strata::runtime

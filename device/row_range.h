#pragma once
#include <cstddef>
#include <cstdint>

namespace strata::device {

// The document of a batch's row: its first row and the row after its last, counted from the start of the row's
// sequence. All rows of a document have the same range. {0, 0}: the row belongs to no document.
struct RowRange {
  std::uint32_t first = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};
static_assert(sizeof(RowRange) == 8, "the width of a batch's column");

// Documents are cut into tiles of `size` rows from their first row on. Each tile belongs to the window [begin, begin +
// size) of its sequence's rows that contains its start. So the number of windows does not depend on the documents, a
// document has at most one tile in a window, and if a sequence is one document, the tiles are the windows. The iterator
// walks a window's tiles, and its rows outside of documents:
//   for (TileIterator at(documents, seq, begin, size); at.next();) ... at.document, at.row
class TileIterator {
 public:
  // documents: one per row of the sequence, `seq` in all. from: a row of the window that no earlier tile reaches.
  constexpr TileIterator(const RowRange* documents, std::size_t seq, std::size_t begin, std::size_t size,
                         std::size_t from)
      : documents_(documents), size_(size), next_(from), end_(begin + size < seq ? begin + size : seq) {}
  constexpr TileIterator(const RowRange* documents, std::size_t seq, std::size_t begin, std::size_t size)
      : TileIterator(documents, seq, begin, size, begin) {}

  constexpr bool next() {
    while (next_ < end_) {
      document = documents_[next_];
      row = next_;
      if (document.end <= row) {
        document = {};
        ++next_;
        return true;
      }
      next_ = document.end;
      row = document.first + (row - document.first + size_ - 1) / size_ * size_;
      if (row < end_ && row < document.end) return true;
    }
    return false;
  }

  RowRange document{};  // {0, 0}: the row belongs to no document
  std::size_t row = 0;  // the tile's first row

 private:
  const RowRange* documents_;
  std::size_t size_, next_, end_;
};

}  // namespace strata::device

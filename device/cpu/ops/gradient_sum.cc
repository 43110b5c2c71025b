#include "device/ops/gradient_sum.h"

#include <mutex>

#include "device/cpu/kernels/gradient_sum.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/row_blocks.h"

namespace strata::device {
namespace {

// Blocks of squares per task: an exact sum has a fixed cost to merge.
constexpr std::size_t kBlocksPerTask = 64;
// Kernels see as few headers as they can: inline code of one instruction set must not stand in for another's.
static_assert(cpu::kSquareBlock == kSquareBlock);

}  // namespace

void gradient_sum(Lane& lane, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first) {
  auto* sums = sum.as<float>();
  const auto add_pieces = cpu::gradient_sum_kernels().add_pieces[cpu::index(dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    team.for_range(sum.size, cpu::kGrain, [&](std::size_t begin, std::size_t end) {
      add_pieces(pieces.data(), pieces.size(), begin, sums + begin, end - begin, first);
    });
  });
}

void gradient_square_sum(Lane& lane, ConstView first, ConstView second, ExactSum* total) {
  STRATA_CHECK_EQ(first.size % kSquareBlock, 0u);
  STRATA_CHECK(!second || (second.size == first.size && second.dtype == first.dtype));
  const auto square_sum = cpu::gradient_sum_kernels().square_sum[cpu::index(first.dtype)];
  cpu::submit(lane, [=](cpu::Team& team) {
    std::mutex mutex;  // merging is exact: the order in which tasks come does not matter
    team.for_range(first.size / kSquareBlock, kBlocksPerTask, [&](std::size_t begin, std::size_t end) {
      ExactSum sum;
      for (std::size_t block = begin; block < end; ++block) {
        const std::size_t at = block * kSquareBlock;
        sum.add(square_sum(first.sub(at, kSquareBlock).data, second ? second.sub(at, kSquareBlock).data : nullptr));
      }
      const std::lock_guard lock(mutex);
      total->merge(sum);
    });
  });
}

}  // namespace strata::device

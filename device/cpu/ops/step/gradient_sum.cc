#include "device/ops/step/gradient_sum.h"

#include <mutex>

#include "base/index.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/team.h"

namespace strata::device::cpu {
namespace {

// Blocks of squares per task: merging an exact sum has a fixed cost.
constexpr std::size_t kBlocksPerTask = 64;
// Kernels include as few headers as possible, because inline code of one instruction set must not replace another's.
static_assert(kSquareBlock == device::kSquareBlock);

}  // namespace

void gradient_sum(Lane& lane, std::span<const std::byte* const> pieces, DType dtype, View sum, bool first,
                  const GradientRuns& runs) {
  auto* sums = sum.as<float>();
  const auto add_pieces = gradient_sum_kernels().add_pieces[index(dtype)];
  const auto add_runs = gradient_sum_kernels().add_runs[index(dtype)];
  const std::size_t length = runs.length, before = runs.before;
  auto* partial = runs.partial ? runs.partial.as<float>() : nullptr;
  submit(lane, [=](Team& team) {
    if (length > 1)
      return team.for_range(sum.size, kGrain, [&](std::size_t begin, std::size_t end) {
        add_runs(pieces.data(), pieces.size(), begin, length, before, partial ? partial + begin : nullptr, sums + begin,
                 end - begin, first);
      });
    team.for_range(sum.size, kGrain, [&](std::size_t begin, std::size_t end) {
      add_pieces(pieces.data(), pieces.size(), begin, sums + begin, end - begin, first);
    });
  });
}

void gradient_square_sum(Lane& lane, ConstView first, ConstView second, ExactSum* total) {
  const auto square_sum = gradient_sum_kernels().square_sum[index(first.dtype)];
  submit(lane, [=](Team& team) {
    std::mutex mutex;  // merging is exact, so the order of tasks does not matter
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

}  // namespace strata::device::cpu

#include "runtime/job/score_memory.h"

#include <algorithm>

#include "device/ops/losses/losses.h"

namespace strata::runtime {
namespace {

using device::ClassTarget;

// Bytes that a rank sends per exchange: enough to make waiting negligible, and less with many ranks, because each rank
// has room for the chunks of all.
constexpr std::size_t kChunk = std::size_t{1} << 20, kLeastChunk = std::size_t{1} << 16, kAllChunks = kChunk * 16;
constexpr std::size_t kGrain = 256;

}  // namespace

ScoreMemory::ScoreMemory(const models::Classes& classes, std::uint64_t all_rows, int ranks, std::size_t rows_at_once)
    : rows(all_rows), of_micro_batch(rows_at_once) {
  const auto w = static_cast<std::size_t>(ranks);
  const std::size_t k = classes.names.size();
  const bool number = classes.target == ClassTarget::number, predicts = classes.target == ClassTarget::none;
  curves = !number && !predicts && k <= kMaxTabled;
  first_curve = classes.target == ClassTarget::one && k == 2 ? 1 : 0;
  label_words = std::max<std::size_t>(1, device::class_set_words(classes.target, k));
  // Without curves, only the predicted classes are sent.
  words = label_words + (curves || number || predicts ? k : label_words);
  columns = curves ? (k - first_curve + w - 1) / w : 0;
  const std::size_t of_round = sizeof(std::uint32_t) + of_micro_batch * words * sizeof(float);
  const std::size_t most = std::max(kLeastChunk, std::min(kChunk, kAllChunks / w));
  // A prediction is saved after every exchange, so that no finished row is lost.
  rounds = predicts ? 1 : std::max<std::size_t>(1, most / of_round);
  // No more rounds than there are rows for; the last one may be incomplete.
  if (of_micro_batch > 0) rounds = std::min<std::size_t>(rounds, rows / of_micro_batch + 1);
  chunk_bytes = (rounds * of_round + kGrain - 1) / kGrain * kGrain;
  const std::size_t of_row = predicts ? sizeof(RowLocation)
                             : number ? 2 * sizeof(float)
                             : curves ? label_words * sizeof(std::uint32_t) + columns * sizeof(double)
                                      : 0;
  bytes = rows * of_row;
}

}  // namespace strata::runtime

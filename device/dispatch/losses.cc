#include "device/ops/losses/losses.h"

#include <bit>

#include "device/operations.h"

namespace strata::device {
namespace {

void check(const LogitTile& tile) {
  STRATA_CHECK(tile.logits.dtype == DType::fp32);
  STRATA_CHECK_LE(tile.columns, tile.stride);
  STRATA_CHECK_LE((tile.rows - 1) * tile.stride + tile.columns, tile.logits.size);
}

}  // namespace

void softmax_statistics(Lane& lane, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics) {
  check(tile);
  lane.operations().softmax_statistics(lane, tile, labels, statistics);
}

void combine_statistics(Lane& lane, const VocabularyShards& shards, std::size_t rows,
                        const RowStatistics* shard_statistics, const std::int32_t* labels, RowStatistics* statistics) {
  STRATA_CHECK(std::has_single_bit(shards.count));
  STRATA_CHECK_LE(shards.count, kMaxPartials);
  STRATA_CHECK_LE(shards.vocabulary, shards.count * shards.words);
  lane.operations().combine_statistics(lane, shards, rows, shard_statistics, labels, statistics);
}

void cross_entropy_losses(Lane& lane, std::size_t vocab, const RowStatistics* statistics, const std::int32_t* labels,
                          View losses) {
  STRATA_CHECK(losses.dtype == DType::fp32);
  lane.operations().cross_entropy_losses(lane, vocab, statistics, labels, losses);
}

void cross_entropy_gradient(Lane& lane, const LogitTile& tile, const std::int32_t* labels,
                            const RowStatistics* statistics, const StepScalars* scalars, DType gradient) {
  check(tile);
  lane.operations().cross_entropy_gradient(lane, tile, labels, statistics, scalars, gradient);
}

void sum_losses(Lane& lane, ConstView losses, ExactSum* total) {
  STRATA_CHECK(losses.dtype == DType::fp32);
  lane.operations().sum_losses(lane, losses, total);
}

void class_loss(Lane& lane, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores) {
  STRATA_CHECK_LE(shape.classes, shape.stride);
  STRATA_CHECK_LE(shape.rows * shape.stride, scores.size);
  STRATA_CHECK_EQ(shape.rows, losses.size);
  STRATA_CHECK(scores.dtype == DType::fp32 && losses.dtype == DType::fp32);
  STRATA_CHECK(!d_scores || shape.rows * shape.stride <= d_scores.size);
  STRATA_CHECK_EQ(class_set_words(shape.target, shape.classes) > 0, sets != nullptr);
  STRATA_CHECK(shape.target != ClassTarget::number || shape.classes == 1);
  lane.operations().class_loss(lane, shape, scores, labels, sets, weights, scalars, losses, d_scores);
}

}  // namespace strata::device

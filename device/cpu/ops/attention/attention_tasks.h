#pragma once
#include <algorithm>
#include <cstddef>

#include "device/cpu/kernels/attention/attention.h"

namespace strata::device::cpu {

// Divides a call's tiles into a team's tasks. Larger tasks pack less; with smaller ones, threads finish at about the
// same time. So tasks are as large as possible while each thread still gets several. They start in the order of their
// numbers, the longest first over all heads if attention is causal. Bits do not depend on any of this.
class AttentionTasks {
 public:
  AttentionTasks(const AttentionCall& c, int threads, TaskTiles most_tiles)
      : batch_(c.batch), kv_heads_(c.kv_heads), seq_(c.seq), padded_(c.padded()) {
    const auto team = static_cast<std::size_t>(threads);
    group_ = c.heads / c.kv_heads;
    // Prefers several heads of a group to several tiles of one head: the group's heads all see the same keys.
    for (std::size_t tiles = most_tiles.forward; tiles >= 1; tiles /= 2) {
      heads_ = std::min(group_, std::max<std::size_t>(tiles / 2, 1));
      query_tiles_ = std::min(std::max<std::size_t>(tiles / heads_, 1), windows(1));
      if (fills_threads(forward_tasks(), team)) break;
    }
    // If two threads work on the same head, one waits until the other has added all tiles of its task to dq.
    key_tiles_ = across() >= team ? std::min(most_tiles.backward, windows(1)) : 1;
    while (key_tiles_ > 1 && !fills_threads(backward_tasks(), team)) key_tiles_ /= 2;
  }

  // Floats of scratch per worker, of kernels with AMX or of others.
  std::size_t scratch() const { return attention_scratch(padded_, heads_ * query_tiles_, key_tiles_); }
  std::size_t amx_scratch() const { return amx_attention_scratch(padded_, seq_, heads_ * query_tiles_, key_tiles_); }

  std::size_t forward_rows() const { return query_tiles_ * kAttentionTile; }
  std::size_t forward_tasks() const { return windows(query_tiles_) * across() * parts(); }
  // The tiles of sequence `batch` that start in the window that begins at its row `begin`.
  struct Forward {
    std::size_t batch, head, heads, begin;
  };
  Forward forward(std::size_t task) const {
    const std::size_t window = windows(query_tiles_) - 1 - task / (across() * parts()),
                      rest = task % (across() * parts());
    const std::size_t first = rest % parts() * heads_, kv = rest / parts();
    return {kv / kv_heads_, kv % kv_heads_ * group_ + first, std::min(heads_, group_ - first), window * forward_rows()};
  }

  std::size_t key_tiles() const { return key_tiles_; }
  std::size_t backward_rows() const { return key_tiles_ * kAttentionTile; }
  std::size_t backward_tasks() const { return windows(key_tiles_) * across(); }
  struct Backward {
    std::size_t batch, kv_head, begin;
  };
  Backward backward(std::size_t task) const {
    const std::size_t kv = task % across();
    return {kv / kv_heads_, kv % kv_heads_, task / across() * backward_rows()};
  }

 private:
  // True if each thread gets several tasks and, if all tasks take equally long, nearly all threads are busy in the last
  // round.
  static bool fills_threads(std::size_t tasks, std::size_t threads) {
    const std::size_t rounds = (tasks + threads - 1) / threads;
    return tasks >= 8 * threads && 40 * tasks >= 39 * rounds * threads;
  }

  std::size_t across() const { return batch_ * kv_heads_; }
  std::size_t parts() const { return (group_ + heads_ - 1) / heads_; }
  std::size_t windows(std::size_t tiles) const {
    return (seq_ + tiles * kAttentionTile - 1) / (tiles * kAttentionTile);
  }

  std::size_t batch_, kv_heads_, seq_, padded_, group_ = 1;
  std::size_t heads_ = 1, query_tiles_ = 1, key_tiles_ = 1;
};

}  // namespace strata::device::cpu

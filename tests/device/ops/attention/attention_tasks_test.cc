#include "device/cpu/ops/attention/attention_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

namespace strata::device::cpu {
namespace {

struct Shape {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  AttentionCall call() const {
    return {.batch = batch, .seq = seq, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  }
  std::size_t tiles() const { return (seq + kAttentionTile - 1) / kAttentionTile; }
};

// Calls of models: SmolLM2-135M, GPT-2 124M, Llama 3 8B, Qwen 2 7B, and an encoder with short rows.
const Shape kShapes[] = {{1, 2048, 9, 3, 64},   {4, 2048, 9, 3, 64},   {1, 4096, 12, 12, 64}, {4, 256, 12, 12, 64},
                         {1, 4096, 32, 8, 128}, {2, 2048, 28, 4, 128}, {32, 128, 12, 12, 64}, {1, 1000, 4, 1, 256}};

// Of kernels without AMX, and of those with it.
constexpr TaskTiles (*kMostTiles[])(std::size_t padded_head_dim) = {task_tiles, amx_task_tiles};

struct Team {
  double longest = 0, sum = 0;
  double idle(int threads) const { return 1 - sum / (longest * threads); }
};

// The time until all tasks are done if each thread takes the next task when it is free. end_of(task, begin): its end.
template <typename Cost>
double makespan(std::size_t tasks, int threads, Cost&& end_of) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < threads; ++i) free.push(0);
  double last = 0;
  for (std::size_t task = 0; task < tasks; ++task) {
    const double begin = free.top();
    free.pop();
    free.push(end_of(task, begin));
  }
  for (; !free.empty(); free.pop()) last = free.top();
  return last;
}

// Work in pairs of tiles, of a causal call of whole sequences.
Team forward(const Shape& s, int threads, TaskTiles most) {
  const AttentionTasks tasks(s.call(), threads, most);
  Team team;
  team.longest = makespan(tasks.forward_tasks(), threads, [&](std::size_t number, double begin) {
    const AttentionTasks::Forward task = tasks.forward(number);
    const std::size_t first = task.begin / kAttentionTile;
    double work = 0;
    for (std::size_t tile = first; tile < std::min(s.tiles(), first + tasks.forward_rows() / kAttentionTile); ++tile)
      work += static_cast<double>(task.heads * (tile + 1));
    team.sum += work;
    return begin + work;
  });
  return team;
}

// dq accounts for a fifth of the work on a pair of tiles. It waits until the previous key tile has added its part.
Team backward(const Shape& s, int threads, TaskTiles most) {
  const AttentionTasks tasks(s.call(), threads, most);
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, double> added;  // by sequence, head and row of tiles
  Team team;
  team.longest = makespan(tasks.backward_tasks(), threads, [&](std::size_t number, double now) {
    const AttentionTasks::Backward task = tasks.backward(number);
    const std::size_t first = task.begin / kAttentionTile, end = std::min(s.tiles(), first + tasks.key_tiles());
    const std::size_t group = s.heads / s.kv_heads;
    for (std::size_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
      for (std::size_t row = first; row < s.tiles(); ++row) {
        double& before = added[{task.batch, head, row}];
        for (std::size_t key = first; key < end && key <= row; ++key) {
          now = before = std::max(now + 0.8, before) + 0.2;
          team.sum += 1;
        }
      }
    }
    return now;
  });
  return team;
}

void expect_every_tile_once(const Shape& s, TaskTiles most) {
  for (const int threads : {1, 2, 5, 16, 64}) {
    const AttentionTasks tasks(s.call(), threads, most);
    EXPECT_LE(tasks.forward(0).heads * tasks.forward_rows() / kAttentionTile, most.forward);
    EXPECT_LE(tasks.key_tiles(), most.backward);
    std::multiset<std::tuple<std::size_t, std::size_t, std::size_t>> queries, keys;
    for (std::size_t i = 0; i < tasks.forward_tasks(); ++i) {
      const AttentionTasks::Forward task = tasks.forward(i);
      EXPECT_EQ(task.head / (s.heads / s.kv_heads), (task.head + task.heads - 1) / (s.heads / s.kv_heads));
      for (std::size_t head = task.head; head < task.head + task.heads; ++head)
        for (std::size_t row = task.begin; row < std::min(s.seq, task.begin + tasks.forward_rows());
             row += kAttentionTile)
          queries.insert({task.batch, head, row});
    }
    for (std::size_t i = 0; i < tasks.backward_tasks(); ++i) {
      const AttentionTasks::Backward task = tasks.backward(i);
      for (std::size_t row = task.begin; row < std::min(s.seq, task.begin + tasks.backward_rows());
           row += kAttentionTile)
        keys.insert({task.batch, task.kv_head, row});
    }
    EXPECT_EQ(queries.size(), s.batch * s.heads * s.tiles());
    EXPECT_EQ(keys.size(), s.batch * s.kv_heads * s.tiles());
    EXPECT_EQ(std::set(queries.begin(), queries.end()).size(), queries.size());
    EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
  }
}

TEST(AttentionTasks, CoverEveryTileOnce) {
  for (const Shape& s : kShapes)
    for (const auto most : kMostTiles) expect_every_tile_once(s, most(s.call().padded()));
}

// Forward: if single tiles make eight tasks per thread. Backward: if they do, and there are no more threads than key
// heads in all sequences, or than twice as many if sequences are long.
void expect_no_thread_idle(const Shape& s, TaskTiles most) {
  for (int threads = 2; threads <= 64; ++threads) {
    const auto team = static_cast<std::size_t>(threads);
    const std::size_t across = s.batch * s.kv_heads;
    if (s.batch * s.heads * s.tiles() >= 8 * team) {
      EXPECT_LE(forward(s, threads, most).idle(threads), 0.05) << s.seq << " x " << s.heads << " by " << threads;
    }
    const bool few = across >= team || (2 * across >= team && s.tiles() >= 32);
    if (few && across * s.tiles() >= 8 * team) {
      EXPECT_LE(backward(s, threads, most).idle(threads), 0.05) << s.seq << " x " << s.heads << " by " << threads;
    }
  }
}

TEST(AttentionTasks, LeaveNoThreadIdle) {
  for (const Shape& s : kShapes)
    for (const auto most : kMostTiles) expect_no_thread_idle(s, most(s.call().padded()));
}

}  // namespace
}  // namespace strata::device::cpu

#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

// The operations of which a kernel of the fake NCCL consists. Ranks synchronize through the data that each gives to
// others.
namespace fake_nccl {

[[noreturn]] inline void die(const char* why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why);
  std::abort();
}

using Key = std::tuple<int, int, std::uint64_t>;  // from, to (-1: all), the how manieth
// Bytes that a rank gives, kept until all receivers have them.
struct Offer {
  const void* data;
  std::size_t bytes;
  int takers;
};
using Offers = std::map<Key, Offer>;

// A rank's own copy, what it gives, or what it takes.
struct Operation {
  enum { own, give, take } kind;
  Key key;
  void* to;
  const void* from;
  std::size_t bytes;
  int takers;
};

// wait(reached) blocks until reached() is true. Returns false if the kernel has to stop first; then the run is over.
template <typename Wait, typename Notify>
void run(const std::vector<Operation>& operations, Offers& offers, const Wait& wait, const Notify& notify) {
  // A rank's own copy is made before others may read it.
  for (const Operation& op : operations)
    if (op.kind == Operation::own) std::memmove(op.to, op.from, op.bytes);
  for (const Operation& op : operations)
    if (op.kind == Operation::give) offers[op.key] = {op.from, op.bytes, op.takers};
  notify();
  for (const Operation& op : operations) {
    if (op.kind != Operation::take) continue;
    if (!wait([&] { return offers.count(op.key) != 0; })) return;
    Offer& offer = offers[op.key];
    if (offer.bytes != op.bytes) die("ranks give other sizes to one collective");
    std::memcpy(op.to, offer.data, op.bytes);
    if (--offer.takers == 0) offers.erase(op.key);
    notify();
  }
  // Given data stays unchanged until all receivers have it.
  for (const Operation& op : operations)
    if (op.kind == Operation::give && !wait([&] { return offers.count(op.key) == 0; })) return;
}

}  // namespace fake_nccl

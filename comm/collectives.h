#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/cpu/team.h"

namespace strata::comm {

// The interface of a backend: the collectives of communicator.h as blocking calls, which return when this rank's part
// is done. Only one thread at a time calls them (a lane's, or the host's). Waits throw Aborted if the run is aborted.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out,
                          device::cpu::Team& team) = 0;
  virtual void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                          const std::byte** pieces) = 0;
  virtual void release() = 0;
  virtual void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) = 0;
  virtual void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team& team) = 0;
  // Messages of at least 1 byte between two ranks.
  virtual void send(const std::byte* data, std::size_t bytes, int to) = 0;
  virtual void receive(std::byte* data, std::size_t bytes, int from, device::cpu::Team& team) = 0;

  // Exchanges texts of any length in rounds of exchange(); result[r] is rank r's text. Allocates, so for set-up only.
  std::vector<std::string> exchange_texts(const std::string& mine);
};

// This rank's piece of the range in its shard; null if the piece is empty.
const std::byte* own_piece(const ShardedRange& range, int rank, const std::byte* shard);

// Copies with all threads of the team. Does nothing if both pointers are equal.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, device::cpu::Team& team);

}  // namespace strata::comm

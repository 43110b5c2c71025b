#include "runtime/execute/chunk_gather.h"

namespace strata::runtime {

std::span<std::byte> ChunkGather::on_host() const {
  const device::View all = storage_.view(plan_.chunks.host_buffer, device::DType::fp32);
  return {reinterpret_cast<std::byte*>(all.data), static_cast<std::size_t>(plan_.ranks()) * plan_.chunks.bytes};
}

std::span<std::byte> ChunkGather::own() const {
  return on_host().subspan(place(), plan_.chunks.bytes);
}

std::span<const std::byte> ChunkGather::all() {
  const RankChunks& chunks = plan_.chunks;
  const std::span<std::byte> all = on_host();
  if (plan_.ranks() == 1) return all;
  const bool apart = chunks.buffer != chunks.host_buffer;
  if (apart) storage_.write(chunks.buffer, own(), place());
  auto* const there = reinterpret_cast<std::byte*>(storage_.view(chunks.buffer, device::DType::fp32).data);
  gather_.all_gather({chunks.bytes, 0, all.size()}, there + place(), there);
  gather_.lane().synchronize();
  if (apart) storage_.read(chunks.buffer, all);
  return all;
}

}  // namespace strata::runtime

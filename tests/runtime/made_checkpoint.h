#pragma once
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "models/flat_range.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"

namespace strata::runtime {

// Writes a checkpoint by hand: fp32 masters of one tensor, "w", where element i is i; one file per range of a box. No
// run would write some of these shards.
inline void make_checkpoint(const std::filesystem::path& folder, const std::vector<std::uint64_t>& shape,
                            const std::vector<BoxRange>& ranges, std::uint64_t serial = 1) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  manifest.serial = serial;
  manifest.progress = {1, 1, 1, 1, {1.0f, 0}};
  manifest.ranks = static_cast<int>(ranges.size());
  manifest.family = "gpt2";
  manifest.config = "{}";
  manifest.tensors = {{"w", shape}};
  for (const BoxRange& range : ranges) {
    const auto& [box, begin, end] = range;
    manifest.boxes |= !box.is_full();
    std::vector<float> values(end - begin);
    const Box whole = Box::full(shape);
    const auto fill = [&](std::uint64_t at, std::uint64_t full_index, std::uint64_t count) {
      std::iota(values.begin() + static_cast<std::ptrdiff_t>(at - begin),
                values.begin() + static_cast<std::ptrdiff_t>(at - begin + count), static_cast<float>(full_index));
    };
    for_common(range, {whole, 0, whole.elements()}, fill);
    std::string data(values.size() * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    Extent e{"master", "w", device::StorageFormat::fp32, box, begin, end};
    e.bytes = data.size();
    for (std::size_t at = 0; at < data.size(); at += kBlockBytes)
      e.checksums.push_back(XXH3_64bits(&data[at], std::min(kBlockBytes, data.size() - at)));
    const std::string header = shard_header(std::span(&e, 1));
    const std::string name = fmt::format("shard-{:05}.safetensors", manifest.files.size());
    std::ofstream(folder / name, std::ios::binary) << header << data;
    manifest.files.push_back(
        {name, header.size() + data.size(), header.size(), XXH3_64bits(header.data(), header.size())});
  }
  std::ofstream(folder / kManifestName, std::ios::binary) << to_json(manifest);
}

// The same for `elements` elements in one dimension, cut into ranges.
inline void make_checkpoint(const std::filesystem::path& folder, std::uint64_t elements,
                            const std::vector<models::ElementRange>& ranges, std::uint64_t serial = 1) {
  const Box whole = Box::full({elements});
  std::vector<BoxRange> all;
  for (const auto& [begin, end] : ranges) all.push_back({whole, begin, end});
  make_checkpoint(folder, std::vector<std::uint64_t>{elements}, all, serial);
}

}  // namespace strata::runtime

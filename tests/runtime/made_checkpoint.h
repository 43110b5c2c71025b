#pragma once
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "models/flat_range.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"

namespace strata::runtime {

// Writes a checkpoint by hand: fp32 masters of one tensor, "w", of `elements` elements, where element i is i; one
// file per range of elements. No run would write some of these shards.
inline void make_checkpoint(const std::filesystem::path& folder, std::uint64_t elements,
                            const std::vector<models::ElementRange>& ranges, std::uint64_t serial = 1) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  manifest.serial = serial;
  manifest.progress = {1, 1, 1, 1, {1.0f, 0}};
  manifest.ranks = static_cast<int>(ranges.size());
  manifest.family = "gpt2";
  manifest.config = "{}";
  manifest.tensors = {{"w", {elements}}};
  for (const auto& [begin, end] : ranges) {
    std::vector<float> values;
    for (std::uint64_t i = begin; i < end; ++i) values.push_back(static_cast<float>(i));
    std::string data(values.size() * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    Extent e{"master", "w", device::StorageFormat::fp32, {elements}, begin, end};
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

}  // namespace strata::runtime

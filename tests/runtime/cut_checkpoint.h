#pragma once
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/reader.h"
#include "runtime/plan/layout/box.h"

namespace strata::runtime {

// Copies a checkpoint so that each matrix's state is in boxes of a quarter of its columns, each split over two files.
inline void cut_columns(const std::filesystem::path& from, const std::filesystem::path& to) {
  constexpr std::uint64_t kPieces = 4;
  const Checkpoint checkpoint(from);
  std::filesystem::create_directories(to);
  Manifest manifest = checkpoint.manifest();
  manifest.boxes = true;
  std::vector<std::vector<Extent>> extents(kPieces);
  std::vector<std::string> data(kPieces);
  for (const std::string& kind : checkpoint.kinds())
    for (const TensorEntry& tensor : manifest.tensors) {
      const auto stored = checkpoint.extents(kind, tensor.name);
      const auto format = stored[0].format;
      std::string bytes(stored_bytes(format, tensor.elements()), '\0');
      checkpoint.read_elements(kind, tensor.name, 0, std::as_writable_bytes(std::span(bytes)));
      const Box whole = Box::full(tensor.shape);
      const std::uint64_t size = stored_bytes(format, 1);
      const bool cut = tensor.shape.size() == 2 && tensor.shape[1] % kPieces == 0;
      for (std::uint64_t piece = 0; piece < (cut ? kPieces : 1); ++piece) {
        Box box = whole;
        if (cut) {
          box.size[1] /= kPieces;
          box.offset[1] = piece * box.size[1];
        }
        const std::uint64_t middle = box.elements() / 2 / 256 * 256;
        for (const auto& [begin, end] : {std::pair{std::uint64_t{0}, middle}, std::pair{middle, box.elements()}}) {
          if (begin == end) continue;
          const std::size_t file = (piece + (begin > 0)) % kPieces;
          std::string part((end - begin) * size, '\0');
          for_common({box, begin, end}, {whole, 0, whole.elements()},
                     [&, first = begin](std::uint64_t at, std::uint64_t full_index, std::uint64_t count) {
                       part.replace((at - first) * size, count * size, bytes, full_index * size, count * size);
                     });
          Extent& e = extents[file].emplace_back(kind, tensor.name, format, box, begin, end);
          e.bytes = part.size();
          for (std::size_t at = 0; at < part.size(); at += kBlockBytes)
            e.checksums.push_back(XXH3_64bits(&part[at], std::min(kBlockBytes, part.size() - at)));
          data[file] += part;
        }
      }
    }
  manifest.files.clear();
  for (std::size_t file = 0; file < kPieces; ++file) {
    const std::string header = shard_header(extents[file]), name = fmt::format("part-{}", file);
    std::ofstream(to / name, std::ios::binary) << header << data[file];
    manifest.files.push_back(
        {name, header.size() + data[file].size(), header.size(), XXH3_64bits(header.data(), header.size())});
  }
  std::ofstream(to / kManifestName, std::ios::binary) << to_json(manifest);
}

}  // namespace strata::runtime

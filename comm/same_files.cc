#include "comm/same_files.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "comm/agreement.h"

namespace strata::comm {
namespace {

// Calls f(block) for every block that a fingerprint covers. Places are rounded down, so the last block ends with the
// last byte.
template <typename F>
void for_blocks(std::span<const std::byte> bytes, const Coverage& coverage, F&& f) {
  if (bytes.size() <= coverage.whole) return f(bytes);
  const std::size_t last = bytes.size() - coverage.block_bytes, gaps = coverage.blocks - 1;
  for (std::size_t i = 0; i <= gaps; ++i)
    f(bytes.subspan(last / gaps * i + last % gaps * i / gaps, coverage.block_bytes));
}

constexpr char kEnd = '\0';

// Names and fingerprints, each followed by a zero byte.
std::string packed(std::span<const FileFingerprint> all) {
  std::string text;
  for (const FileFingerprint& one : all) text += one.name + kEnd + one.fingerprint + kEnd;
  return text;
}

std::vector<FileFingerprint> unpacked(std::string_view text) {
  std::vector<FileFingerprint> all;
  const auto next = [&] {
    const std::string_view part = text.substr(0, text.find(kEnd));
    text.remove_prefix(part.size() + 1);
    return std::string(part);
  };
  while (!text.empty()) {
    FileFingerprint& one = all.emplace_back();
    one.name = next();
    one.fingerprint = next();
  }
  return all;
}

std::string hash_of_fingerprints(std::span<const FileFingerprint> all) {
  std::string text;
  for (const FileFingerprint& one : all) text += one.fingerprint + kEnd;
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// The most common text; in a tie, the lowest rank's.
const std::string& most_common(const std::vector<std::string>& texts) {
  std::map<std::string_view, std::size_t> times;
  for (const std::string& text : texts) ++times[text];
  return *std::max_element(texts.begin(), texts.end(),
                           [&](const auto& a, const auto& b) { return times[a] < times[b]; });
}

// The first difference between what two ranks see, as a sentence.
std::string difference(std::span<const FileFingerprint> odd, std::size_t odd_rank,
                       std::span<const FileFingerprint> usual, std::size_t usual_rank) {
  constexpr const char* kAdvice = "give all ranks the same files under the same names";
  const std::size_t both = std::min(odd.size(), usual.size());
  for (std::size_t i = 0; i < both; ++i) {
    if (odd[i].fingerprint == usual[i].fingerprint) continue;
    if (odd[i].name != usual[i].name)
      return fmt::format("rank {} reads {}, but rank {} reads {}: {}", odd_rank, odd[i].name, usual_rank, usual[i].name,
                         kAdvice);
    return fmt::format("rank {} sees a different {} than rank {} ({}, not {}): {}", odd_rank, odd[i].name, usual_rank,
                       odd[i].fingerprint, usual[i].fingerprint, kAdvice);
  }
  const bool more = odd.size() > usual.size();
  return fmt::format("rank {} sees {}, which rank {} does not: {}", more ? odd_rank : usual_rank,
                     (more ? odd : usual)[both].name, more ? usual_rank : odd_rank, kAdvice);
}

}  // namespace

Coverage of_tensors(std::size_t all_bytes) {
  if (all_bytes <= kOfFile.whole) return {all_bytes, 1, 1};
  return {std::size_t{64} << 10, 4, std::size_t{4} << 10};
}

void ask_for(std::span<const std::byte> bytes, const Coverage& coverage) {
  for_blocks(bytes, coverage, [](std::span<const std::byte> block) { MappedFile::will_need(block); });
}

std::string fingerprint_of(std::span<const std::byte> bytes, const Coverage& coverage) {
  ask_for(bytes, coverage);
  std::uint64_t hash = 0;
  for_blocks(bytes, coverage,
             [&](std::span<const std::byte> block) { hash = XXH3_64bits_withSeed(block.data(), block.size(), hash); });
  return fmt::format("{} bytes, hash {:016x}", bytes.size(), hash);
}

FileFingerprint fingerprint_file(const std::filesystem::path& file, const std::string& key) {
  FileFingerprint out{fmt::format("{} ({})", file.string(), key), {}};
  try {
    out.fingerprint = fingerprint_of(MappedFile(file).bytes(), kOfFile);
  } catch (const Error& error) {
    out.fingerprint = error.what();
  }
  return out;
}

void require_same(std::span<const FileFingerprint> mine, comm::World& world) {
  if (world.size() == 1) return;
  const std::vector<std::string> hashes = world.exchange(hash_of_fingerprints(mine));
  const auto usual = std::find(hashes.begin(), hashes.end(), most_common(hashes));
  const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](const auto& hash) { return hash != *usual; });
  if (odd == hashes.end()) return;
  const std::size_t a = static_cast<std::size_t>(odd - hashes.begin());
  const std::size_t b = static_cast<std::size_t>(usual - hashes.begin());
  const auto rank = static_cast<std::size_t>(world.rank());
  const std::vector<std::string> lists = world.exchange(rank == a || rank == b ? packed(mine) : "");
  throw comm::AgreedError(Exit::failed, difference(unpacked(lists[a]), a, unpacked(lists[b]), b));
}

}  // namespace strata::comm

#include "runtime/data/files/documents.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"

namespace strata::runtime {

namespace fs = std::filesystem;

MappedFile open_companion(const TokenFile& tokens, const fs::path& path, const std::string& named,
                          std::optional<std::uint64_t> bytes) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    fail(Exit::usage, "{} is missing, but the sidecar of {} names it: copy it too, or tokenize again", path.string(),
         tokens.path().string());
  MappedFile file(path);
  const std::string sidecar = sidecar_path(tokens.path()).string();
  if (bytes && file.bytes().size() != *bytes)
    fail(Exit::corrupt, "{} has {} bytes, but {} implies {}: tokenize again", path.string(), file.bytes().size(),
         sidecar, *bytes);
  const std::string hash = fmt::format("{:016x}", XXH3_64bits(file.bytes().data(), file.bytes().size()));
  if (hash != named)
    fail(Exit::corrupt, "{} has the hash {}, but {} records {}: tokenize again", path.string(), hash, sidecar, named);
  return file;
}

Documents::Documents(const TokenFile& file) : tokens_(file.count()) {
  const auto& sidecar = file.sidecar();
  if (!sidecar || !sidecar->documents)
    fail(Exit::usage,
         "{} does not say where documents begin, which data.packing = \"documents\" needs: tokenize again, or use "
         "\"stream\"",
         file.path().string());
  const fs::path path = documents_path(file.path());
  file_ = open_companion(file, path, sidecar->documents->hash, sidecar->documents->count * sizeof(std::uint64_t));
  begins_ = {reinterpret_cast<const std::uint64_t*>(file_.bytes().data()), sidecar->documents->count};
  const auto wrong = [&](std::uint64_t i, const std::string& what) {
    fail(Exit::corrupt, "{}, offset {}: document {} of {} {}: tokenize again", path.string(), i * sizeof(std::uint64_t),
         i + 1, count(), what);
  };
  if (count() > 0 && begins_[0] != 0) wrong(0, fmt::format("begins at token {}, not at 0", begins_[0]));
  const auto bad = std::adjacent_find(begins_.begin(), begins_.end(), std::greater_equal<>());
  if (bad != begins_.end())
    wrong(static_cast<std::uint64_t>(bad - begins_.begin()),
          bad[0] == bad[1] ? "is empty" : fmt::format("begins at token {}, but the next one at {}", bad[0], bad[1]));
  if (count() > 0 && begins_.back() >= tokens_)
    wrong(count() - 1, fmt::format("begins at token {}, but there are only {} tokens", begins_.back(), tokens_));
  if (sidecar->types) types_ = open_companion(file, types_path(file.path()), sidecar->types->hash, (tokens_ + 7) / 8);
  if (!sidecar->mask) return;
  mask_ = open_companion(file, mask_path(file.path()), sidecar->mask->hash, (tokens_ + 7) / 8);
  if (const std::uint64_t found = labels(0, tokens_); found != sidecar->mask->count)
    fail(Exit::corrupt, "{} counts {} tokens as labels, but {} says {}: tokenize again", mask_.path().string(), found,
         sidecar_path(file.path()).string(), sidecar->mask->count);
}

bool Documents::counts(std::uint64_t token) const {
  if (!has_mask()) return true;
  return bit(mask_, token) != 0;
}

std::uint64_t Documents::labels(std::uint64_t begin, std::uint64_t end) const {
  if (!has_mask() || begin >= end) return end - std::min(begin, end);
  // Bits up to the next whole byte, words, and the rest, all read as words.
  const std::byte* const bytes = mask_.bytes().data();
  std::uint64_t sum = 0;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t byte = at / 8, shift = at % 8, bits = std::min<std::uint64_t>(64 - shift, end - at);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + byte, std::min<std::uint64_t>(8, mask_.bytes().size() - byte));
    word >>= shift;
    if (bits < 64) word &= (std::uint64_t{1} << bits) - 1;
    sum += static_cast<std::uint64_t>(std::popcount(word));
    at += bits;
  }
  return sum;
}

}  // namespace strata::runtime

#include "runtime/data/files/tokens.h"

#include <fmt/format.h>
#include <glob.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::int32_t kMagic = 20240520;      // llm.c
constexpr std::int32_t kWideMagic = 20240801;  // llm.c's Llama 3 files: uint32 tokens
constexpr std::int64_t kWideVocab = 65536;     // from here on, tokens are uint32
constexpr std::uint64_t kCheckWhole = std::uint64_t{1} << 30;

[[noreturn]] void corrupt(const fs::path& file, std::uint64_t offset, const std::string& expected,
                          const std::string& found) {
  fail(Exit::corrupt, "{}, offset {}: expected {}, found {}", file.string(), offset, expected, found);
}

// The first of `count` tokens at `tokens` that is not below `limit`, or count.
template <typename T>
std::uint64_t first_outside(const std::byte* tokens, std::uint64_t count, std::uint64_t limit) {
  const T* p = reinterpret_cast<const T*>(tokens);  // aligned: the mapping is, and so is the header before
  constexpr std::uint64_t kBlock = 4096;
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t end = std::min(count, begin + kBlock);
    T most = 0;
    for (std::uint64_t i = begin; i < end; ++i) most = std::max(most, p[i]);
    if (most < limit) continue;
    return static_cast<std::uint64_t>(std::find_if(p + begin, p + end, [&](T t) { return t >= limit; }) - p);
  }
  return count;
}

// The number of tokens that are in none of the sets.
template <typename T>
std::uint64_t outside_of(std::span<const T> tokens, std::span<const TokenRange> sets) {
  // Lanes have as many bits as a token, so that compilers vectorize the loop. No lane overflows within a block.
  constexpr std::size_t kLanes = 16, kBlock = 4096 * kLanes;
  std::uint64_t inside = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kBlock) {
    const auto block = tokens.subspan(begin, std::min(kBlock, tokens.size() - begin));
    for (const TokenRange& set : sets) {
      if (set.first > std::numeric_limits<T>::max()) continue;
      const T first = static_cast<T>(set.first);
      const T more = static_cast<T>(std::min<std::uint32_t>(set.last, std::numeric_limits<T>::max()) - set.first);
      const auto is_inside = [&](T token) { return static_cast<T>(static_cast<T>(token - first) <= more ? 1 : 0); };
      std::array<T, kLanes> found{};
      std::size_t at = 0;
      for (; at + kLanes <= block.size(); at += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
          found[lane] = static_cast<T>(found[lane] + is_inside(block[at + lane]));
      for (; at < block.size(); ++at) inside += is_inside(block[at]);
      for (const T of_lane : found) inside += of_lane;
    }
  }
  return tokens.size() - inside;
}

// True if bytes that should be tokens are text: tokens of 2 bytes contain zeros, or bytes of every kind.
bool looks_like_text(std::span<const std::byte> bytes) {
  constexpr std::size_t kLeast = 64, kSample = 4096, kLetters = 16;
  if (bytes.size() < kLeast) return false;
  std::array<bool, 256> seen{};
  for (const std::byte b : bytes.first(std::min(bytes.size(), kSample))) {
    const auto c = std::to_integer<unsigned char>(b);
    if (c < ' ' && c != '\n' && c != '\t' && c != '\r') return false;
    if (c >= 0x7f) return false;
    seen[c] = true;
  }
  return static_cast<std::size_t>(std::count(seen.begin(), seen.end(), true)) >= kLetters;
}

}  // namespace

TokenFile::TokenFile(fs::path path, std::optional<std::int64_t> vocab_size)
    : file_(std::move(path)), sidecar_(read_sidecar(file_.path())) {
  const auto bytes = file_.bytes();
  if (bytes.empty()) corrupt(file_.path(), 0, "tokens", "an empty file");
  // Without this check, a run could train on tokens that should not count.
  const auto require_named = [&](const fs::path& companion, bool named, std::string_view without) {
    std::error_code none;
    if (!named && fs::exists(companion, none))
      fail(Exit::corrupt, "{} exists, but {} does not name it: tokenize again, or remove {}", companion.string(),
           sidecar_path(file_.path()).string(), without);
  };
  require_named(mask_path(file_.path()), sidecar_ && sidecar_->mask, "the mask to train on all");
  require_named(types_path(file_.path()), sidecar_ && sidecar_->types, "it to have one token type");
  require_named(labels_path(file_.path()), sidecar_ && sidecar_->labels, "it to have no labels");
  if (vocab_size) width_ = *vocab_size >= kWideVocab ? 4 : 2;
  if (sidecar_) width_ = sidecar_->width;

  std::int32_t header[3] = {};
  if (bytes.size() >= kHeaderBytes) std::memcpy(header, bytes.data(), sizeof(header));
  const bool plain = sidecar_ && sidecar_->count * static_cast<std::uint64_t>(sidecar_->width) == bytes.size();
  std::uint64_t promised = 0;
  if (!plain && (header[0] == kMagic || header[0] == kWideMagic)) {
    header_bytes_ = kHeaderBytes;
    promised = static_cast<std::uint32_t>(header[2]);
    const std::uint64_t found = bytes.size() - kHeaderBytes;
    // The header has no width, but its count and the file's size imply it.
    const int width = header[0] == kWideMagic || found == 4 * promised ? 4 : 2;
    if (promised == 0 || found != promised * static_cast<std::uint64_t>(width)) {
      corrupt(file_.path(), 8, fmt::format("{} tokens of {} bytes after the header", promised, width),
              fmt::format("{} bytes", found));
    }
    if (sidecar_ && (sidecar_->width != width || sidecar_->count != promised)) {
      corrupt(file_.path(), 8,
              fmt::format("{} tokens of {} bytes, as {} says", sidecar_->count, sidecar_->width,
                          sidecar_path(file_.path()).string()),
              fmt::format("{} of {} bytes in the header", promised, width));
    }
    width_ = width;
  } else if (!sidecar_ && looks_like_text(bytes)) {
    fail(Exit::usage, "{} looks like text, not tokens: make a token file of it with strata tokenize",
         file_.path().string());
  }
  const std::uint64_t data = bytes.size() - header_bytes_;
  const auto width = static_cast<std::uint64_t>(width_);
  if (data % width != 0) {
    corrupt(file_.path(), bytes.size() - data % width, fmt::format("whole tokens of {} bytes", width_),
            fmt::format("{} bytes of one", data % width));
  }
  count_ = data / width;
  if (sidecar_ && sidecar_->count != count_) {
    corrupt(
        file_.path(), bytes.size(),
        fmt::format("{} tokens of {} bytes, as {} says", sidecar_->count, width_, sidecar_path(file_.path()).string()),
        fmt::format("{}", count_));
  }
  limit_ = static_cast<std::uint64_t>(vocab_size.value_or(std::int64_t{1} << 32));
  if (sidecar_) limit_to(vocab_size.value_or(sidecar_->vocab_size));
}

void TokenFile::limit_to(std::int64_t vocab_size) {
  STRATA_CHECK(sidecar_.has_value());  // without one, the vocabulary also gives the width
  if (sidecar_->vocab_size > vocab_size)
    fail(Exit::usage,
         "{} contains tokens from a vocabulary of {}, but the model's has {}: tokenize with the model's tokenizer",
         file_.path().string(), sidecar_->vocab_size, vocab_size);
  limit_ = static_cast<std::uint64_t>(sidecar_->vocab_size);
}

void TokenFile::outside(std::uint64_t index, std::uint64_t value) const {
  const bool own = sidecar_ && limit_ == static_cast<std::uint64_t>(sidecar_->vocab_size);
  corrupt(file_.path(), header_bytes_ + index * static_cast<std::uint64_t>(width_),
          fmt::format("a token below {} ({})", limit_, own ? "vocab_size of its sidecar" : "the model's vocabulary"),
          fmt::format("{}", value));
}

template <typename T>
std::span<const T> TokenFile::tokens(std::uint64_t begin, std::uint64_t count) const {
  STRATA_CHECK_LE(begin, count_);
  STRATA_CHECK_LE(count, count_ - begin);
  return {reinterpret_cast<const T*>(file_.bytes().data() + header_bytes_) + begin, count};
}

template <typename T>
void TokenFile::read_as(std::uint64_t begin, std::span<std::uint32_t> out) const {
  const std::span<const T> mine = tokens<T>(begin, out.size());
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = mine[i];
    most = std::max(most, out[i]);
  }
  if (most < limit_) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](std::uint32_t t) { return t >= limit_; });
  outside(begin + static_cast<std::uint64_t>(bad - out.begin()), *bad);
}

void TokenFile::read(std::uint64_t begin, std::span<std::uint32_t> out) const {
  file_.require_untruncated();
  if (width_ == 2) {
    read_as<std::uint16_t>(begin, out);
  } else {
    read_as<std::uint32_t>(begin, out);
  }
}

std::uint64_t TokenFile::count_outside(std::uint64_t begin, std::uint64_t count,
                                       std::span<const TokenRange> sets) const {
  return width_ == 2 ? outside_of(tokens<std::uint16_t>(begin, count), sets)
                     : outside_of(tokens<std::uint32_t>(begin, count), sets);
}

bool TokenFile::any_outside(std::uint64_t begin, std::uint64_t count, std::span<const TokenRange> sets) const {
  constexpr std::uint64_t kAtOnce = 8;  // most texts have a word among their first tokens
  for (std::uint64_t at = 0; at < count; at += kAtOnce)
    if (count_outside(begin + at, std::min(kAtOnce, count - at), sets) > 0) return true;
  return false;
}

void TokenFile::check_all() const {
  const std::byte* tokens = file_.bytes().data() + header_bytes_;
  const std::uint64_t bad = width_ == 2 ? first_outside<std::uint16_t>(tokens, count_, limit_)
                                        : first_outside<std::uint32_t>(tokens, count_, limit_);
  if (bad < count_) {
    std::uint32_t value = 0;
    std::memcpy(&value, tokens + bad * static_cast<std::uint64_t>(width_), static_cast<std::size_t>(width_));
    outside(bad, value);
  }
  if (!sidecar_ || sidecar_->hash.empty()) return;
  const std::string hash = fmt::format("{:016x}", XXH3_64bits(tokens, count_ * static_cast<std::uint64_t>(width_)));
  if (hash != sidecar_->hash) {
    corrupt(file_.path(), header_bytes_,
            fmt::format("tokens with the hash {} of {}", sidecar_->hash, sidecar_path(file_.path()).string()), hash);
  }
}

comm::FileFingerprint TokenFile::fingerprint(const std::string& key) const {
  std::string companion;  // their hashes are compared with the sidecar's when they are opened
  if (sidecar_ && sidecar_->documents) companion += ", documents " + sidecar_->documents->hash;
  if (sidecar_ && sidecar_->mask) companion += ", mask " + sidecar_->mask->hash;
  if (sidecar_ && sidecar_->types) companion += ", types " + sidecar_->types->hash;
  if (sidecar_ && sidecar_->labels) companion += ", labels " + sidecar_->labels->hash;
  return {fmt::format("{} ({})", path().string(), key),
          fmt::format("{}, {} tokens of {} bytes{}", comm::fingerprint_of(file_.bytes(), comm::kOfFile), count_, width_,
                      companion)};
}

std::vector<fs::path> expand_patterns(std::span<const std::string> patterns, const char* key) {
  std::vector<fs::path> out;
  for (const std::string& pattern : patterns) {
    std::error_code error;
    const fs::file_status status = fs::status(pattern, error);
    if (fs::is_directory(status))
      fail(Exit::usage, "{}: {} is a folder: give its token files, such as {}", key, pattern,
           (fs::path(pattern) / "*.bin").string());
    if (fs::exists(status)) {
      out.emplace_back(pattern);
      continue;
    }
    if (status.type() != fs::file_type::not_found)  // the file may well exist
      fail(Exit::failed, "{}: {} cannot be opened: {}", key, pattern, error.message());
    glob_t found{};
    errno = 0;
    const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
    const int reason = errno;
    std::vector<std::string> names(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    // A folder that does not exist contains no files. An unreadable folder may contain some.
    if (result == GLOB_NOSPACE || (result == GLOB_ABORTED && reason != ENOENT))
      fail(Exit::failed, "{}: a folder of {} cannot be read: {}", key, pattern, std::strerror(reason));
    // `data/*` means the token files, not the files that belong to them.
    std::sort(names.begin(), names.end());
    constexpr std::array<std::string_view, 5> kCompanions = {".json", ".documents", ".mask", ".types", ".labels.jsonl"};
    std::vector<std::string> files;
    for (const std::string& name : names) {
      const bool companion = std::any_of(kCompanions.begin(), kCompanions.end(), [&](std::string_view suffix) {
        return name.ends_with(suffix) &&
               std::binary_search(names.begin(), names.end(), name.substr(0, name.size() - suffix.size()));
      });
      if (!companion) files.push_back(name);
    }
    if (files.empty()) fail(Exit::usage, "{}: no file matches {}", key, pattern);
    out.insert(out.end(), files.begin(), files.end());
  }
  return out;
}

void check_token_files(std::span<const TokenFile> files, const char* key,
                       std::vector<comm::FileFingerprint>& fingerprints) {
  for (const TokenFile& file : files) {
    if (file.count() * static_cast<std::uint64_t>(file.width()) < kCheckWhole) file.check_all();
    fingerprints.push_back(file.fingerprint(key));  // now, because what was checked is still in the page cache
  }
}

std::vector<TokenFile> open_token_files(std::span<const std::string> patterns, const char* key, std::int64_t vocab_size,
                                        std::vector<comm::FileFingerprint>& fingerprints) {
  std::vector<TokenFile> out;
  for (const fs::path& path : expand_patterns(patterns, key)) out.emplace_back(path, vocab_size);
  check_token_files(out, key, fingerprints);
  return out;
}

}  // namespace strata::runtime

#include "text/token_writer.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace strata::text {

HashedFile::HashedFile(AtomicFile& file) : file_(file), hash_(XXH3_createState(), &XXH3_freeState) {
  XXH3_64bits_reset(hash_.get());
}

void HashedFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  if (bytes_.size() >= kAtOnce) flush();
}

void HashedFile::flush() {
  XXH3_64bits_update(hash_.get(), bytes_.data(), bytes_.size());
  file_.write(bytes_);
  bytes_.clear();
}

std::string HashedFile::hash() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(hash_.get()));
}

void BitFile::add(bool value, std::uint64_t count) {
  if (value) ones_ += count;
  for (const std::uint64_t end = count_ + count; count_ < end; ++count_) {
    bits_ |= static_cast<unsigned>(value) << count_ % 8;
    if (count_ % 8 != 7) continue;
    const auto byte = static_cast<std::byte>(bits_);
    file_.write({&byte, 1});
    bits_ = 0;
  }
}

void BitFile::finish() {
  const auto byte = static_cast<std::byte>(bits_);
  if (count_ % 8 != 0) file_.write({&byte, 1});
  file_.flush();
}

TokenWriter::TokenWriter(AtomicFile& tokens, AtomicFile& documents, AtomicFile* mask, int width,
                         std::optional<std::uint32_t> separator)
    : tokens_(tokens), begins_(documents), width_(width), separator_(separator) {
  if (mask) mask_.emplace(*mask);
}

void TokenWriter::begin_document() {
  if (pending_ && begun_) ++empty_documents_;
  begun_ = pending_ = true;
}

template <typename T>
void TokenWriter::write_as(std::span<const std::uint32_t> tokens) {
  bytes_.resize(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    // Little-endian, as on every machine that Strata runs on.
    const T token = static_cast<T>(tokens[i]);
    std::memcpy(bytes_.data() + i * sizeof(T), &token, sizeof(T));
  }
  tokens_.write(bytes_);
}

void TokenWriter::write(std::span<const std::uint32_t> tokens, bool counts) {
  if (width_ == 2) {
    write_as<std::uint16_t>(tokens);
  } else {
    write_as<std::uint32_t>(tokens);
  }
  counted_ = counts;
  if (mask_) mask_->add(counts, tokens.size());
  count_ += tokens.size();
}

void TokenWriter::add(std::span<const std::uint32_t> tokens, bool counts) {
  if (tokens.empty()) return;
  if (pending_) {
    pending_ = false;
    if (count_ > 0 && separator_) {
      separated_ = true;
      write({&*separator_, 1}, counted_);
    }
    begins_.write(std::as_bytes(std::span(&count_, 1)));
    ++documents_;
  }
  write(tokens, counts);
}

void TokenWriter::add(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> counts) {
  STRATA_CHECK_EQ(tokens.size(), counts.size());
  for (std::size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    const bool value = counts[begin] != 0;
    while (end < tokens.size() && (counts[end] != 0) == value) ++end;
    add(tokens.subspan(begin, end - begin), value);
  }
}

void TokenWriter::finish() {
  tokens_.flush();
  begins_.flush();
  if (mask_) mask_->finish();
}

}  // namespace strata::text

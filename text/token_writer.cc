#include "text/token_writer.h"

#include <fmt/format.h>

#include <cstring>

namespace strata::text {

TokenWriter::TokenWriter(AtomicFile& file, int width, std::optional<std::uint32_t> separator)
    : file_(file), width_(width), separator_(separator), hash_(XXH3_createState(), &XXH3_freeState) {
  XXH3_64bits_reset(hash_.get());
}

template <typename T>
void TokenWriter::write_as(std::span<const std::uint32_t> tokens) {
  bytes_.resize(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    // Little-endian, as every machine that Strata runs on.
    const T token = static_cast<T>(tokens[i]);
    std::memcpy(bytes_.data() + i * sizeof(T), &token, sizeof(T));
  }
  XXH3_64bits_update(hash_.get(), bytes_.data(), bytes_.size());
  file_.write(bytes_);
  count_ += tokens.size();
}

void TokenWriter::add(std::span<const std::uint32_t> tokens) {
  if (tokens.empty()) return;
  if (separate_) {
    separate_ = false;
    separated_ = true;
    add(std::span(&*separator_, 1));
  }
  if (width_ == 2) {
    write_as<std::uint16_t>(tokens);
  } else {
    write_as<std::uint32_t>(tokens);
  }
}

std::string TokenWriter::hash() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(hash_.get()));
}

}  // namespace strata::text

#include "text/input/input_bytes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "text/input/file_signature.h"

namespace strata::text {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;

struct CompressionExtension {
  std::string_view extension;
  Compression compression;
};
constexpr auto kExtensions = std::to_array<CompressionExtension>({{"gz", Compression::gzip},
                                                                  {"bgz", Compression::gzip},
                                                                  {"zst", Compression::zstd},
                                                                  {"zstd", Compression::zstd},
                                                                  {"xz", Compression::xz},
                                                                  {"bz2", Compression::bzip2}});

// Removes the last extension from a name, and returns it in lower case.
std::string take_extension(std::string_view& name) {
  const std::size_t slash = name.rfind('/'), dot = name.rfind('.');
  if (dot == name.npos || (slash != name.npos && dot < slash)) return {};
  std::string out(name.substr(dot + 1));
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  name = name.substr(0, dot);
  return out;
}

Compression compression_of_name(std::string_view name) {
  const std::string extension = take_extension(name);
  for (const CompressionExtension& known : kExtensions)
    if (known.extension == extension) return known.compression;
  return Compression::none;
}

}  // namespace

std::string content_extension(std::string_view name) {
  if (compression_of_name(name) != Compression::none) (void)take_extension(name);
  return take_extension(name);
}

InputBytes::InputBytes(const std::string& name)
    : name_(name == "-" ? "standard input" : name), standard_(name == "-"), extension_(content_extension(name)) {
  if (standard_) return;
  InputFile input(name, Pipes::handed_over);
  if (input.error == ENOENT) refuse_broken_link(name);
  if (input.error != 0 && input.error != ENXIO)  // ENXIO is a socket
    fail(input.error == ENOENT || input.error == ENOTDIR ? Exit::usage : Exit::failed, "{} cannot be opened: {}", name_,
         std::strerror(input.error));
  if (std::error_code ignored; std::filesystem::is_directory(name, ignored))
    fail(Exit::usage, "{} is a folder: give the files in it", name_);
  if (input.file.get() < 0)
    fail(Exit::usage, "{} is not a regular file: give - to read text from a pipe (standard input)", name_);
  file_ = std::move(input.file);
}

// Reads bytes as they are stored; 0 at the end.
std::size_t InputBytes::raw(char* out, std::size_t size) {
  if (raw_ended_) return 0;
  for (;;) {
    const ssize_t n = ::read(standard_ ? STDIN_FILENO : file_.get(), out, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(errno == EISDIR ? Exit::usage : Exit::failed, "{} cannot be read: {} (errno {})", name_,
           std::strerror(errno), errno);
    raw_ended_ = n == 0;
    return static_cast<std::size_t>(n);
  }
}

// Reads decompressed bytes; 0 at the end.
std::size_t InputBytes::plain(char* out, std::size_t size) {
  if (!decompressor_) {
    // Start with the bytes that were read to identify the compression.
    if (compressed_at_ == compressed_.size()) return raw(out, size);
    const std::size_t n = std::min(size, compressed_.size() - compressed_at_);
    std::memcpy(out, compressed_.data() + compressed_at_, n);
    compressed_at_ += n;
    return n;
  }
  try {
    for (;;) {
      if (compressed_at_ == compressed_.size()) {
        compressed_.resize(kPiece);
        compressed_.resize(raw(compressed_.data(), kPiece));
        compressed_at_ = 0;
      }
      const bool last = compressed_.empty();
      std::string_view in = std::string_view(compressed_).substr(compressed_at_);
      const std::size_t n = decompressor_->run(in, {out, size}, last);
      compressed_at_ = compressed_.size() - in.size();
      if (n > 0 || last) return n;
    }
  } catch (const StreamFault& fault) {
    fail(Exit::corrupt, "{}, which is compressed by {}, cannot be read: {}", name_, name_of(compression_),
         fault.message);
  }
}

void InputBytes::open() {
  opened_ = true;
  compressed_.resize(kSignatureBytes);
  std::size_t have = 0;
  while (have < compressed_.size()) {
    const std::size_t n = raw(compressed_.data() + have, compressed_.size() - have);
    if (n == 0) break;
    have += n;
  }
  compressed_.resize(have);
  refuse_lfs_pointer(compressed_, name_);
  compression_ = compression_of(compressed_);
  const Compression named = standard_ ? Compression::none : compression_of_name(name_);
  if (named != Compression::none && compression_ == Compression::none && have > 0)
    fail(Exit::corrupt, "{} is not {} data, although its name suggests it: rename it, or download it again", name_,
         name_of(named));
  if (compression_ != Compression::none) decompressor_ = make_decompressor(compression_);
  head_.resize(kSignatureBytes);
  have = 0;
  while (have < head_.size()) {
    const std::size_t n = plain(head_.data() + have, head_.size() - have);
    if (n == 0) break;
    have += n;
  }
  head_.resize(have);
  look_at_head();
}

void InputBytes::look_at_head() {
  const std::string inside = compression_ == Compression::none
                                 ? ""
                                 : fmt::format("{}: the content compressed by {} ", name_, name_of(compression_));
  const auto refuse = [&](std::string_view what) {
    if (inside.empty()) fail(Exit::usage, "{} {}", name_, what);
    fail(Exit::usage, "{}{}", inside, what);
  };
  const Mark mark = byte_order_mark(head_);
  // Some audio and video formats begin like a UTF-16 mark, but a text continues with its first character.
  if (mark.bytes == 0) {
    std::string kind = file_kind(head_, name_);
    if (kind.empty()) kind = kind_of_extension(extension_, name_);
    if (!kind.empty()) refuse(kind);
    if (compression_of(head_) != Compression::none)
      refuse(fmt::format("is compressed again, by {}: decompress it first", name_of(compression_of(head_))));
    const Encoding looks = encoding_from_zero_bytes(head_);
    if (looks != Encoding::utf8)
      refuse(
          fmt::format("looks like {0} without a byte order mark: iconv -f {0} -t UTF-8 converts it", name_of(looks)));
  }
  encoding_ = mark.encoding;
  head_.erase(0, mark.bytes);
  if (encoding_ != Encoding::utf8) undecoded_ = std::exchange(head_, {});
}

void InputBytes::refuse_zeros(std::string_view text, std::uint64_t offset) const {
  const std::size_t at = text.find('\0');
  if (at == text.npos) return;
  fail(Exit::usage,
       "{}, offset {}: found a NUL byte, which text never contains: the file is not text, or is damaged (tr -d '\\000' "
       "removes such bytes)",
       name_, offset + at);
}

void InputBytes::read(std::string& text, std::size_t size) {
  if (!opened_) open();
  const std::size_t before = text.size();
  std::size_t have = before;
  if (encoding_ == Encoding::utf8) {
    text.resize(std::max(size, have));
    while (have < text.size() && !at_end_) {
      std::size_t n = std::min(head_.size(), text.size() - have);
      if (n > 0) {
        std::memcpy(text.data() + have, head_.data(), n);
        head_.erase(0, n);
      } else {
        n = plain(text.data() + have, text.size() - have);
        at_end_ = n == 0;
      }
      have += n;
    }
    text.resize(have);
  } else {
    while (text.size() < size && !at_end_) {
      const std::size_t kept = undecoded_.size();
      undecoded_.resize(kept + kPiece);
      const std::size_t n = plain(undecoded_.data() + kept, kPiece);
      undecoded_.resize(kept + n);
      at_end_ = n == 0;
      std::string_view in = undecoded_;
      if (!decode(encoding_, in, at_end_, text))
        fail(Exit::corrupt,
             "{} begins with the byte order mark of {}, but has an invalid character after {} bytes of text (as "
             "UTF-8): it is damaged, or is not text",
             name_, name_of(encoding_), offset_ + text.size() - before);
      undecoded_ = in;
    }
  }
  refuse_zeros(std::string_view(text).substr(before), offset_);
  offset_ += text.size() - before;
}

InputHead look_at_input(const std::string& name) {
  struct stat status {};
  if (name == "-" || (::stat(name.c_str(), &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))))
    return {};
  InputBytes input(name);
  InputHead out;
  input.read(out.text, kSignatureBytes);
  out.compression = input.compression();
  return out;
}

}  // namespace strata::text

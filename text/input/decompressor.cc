#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/error.h"
#include "text/input/input_bytes.h"

namespace strata::text {
namespace {

// The most that is passed to the libraries at a time, because their lengths have 32 bits.
constexpr std::size_t kMost = std::size_t{1} << 30;

constexpr std::string_view kGzip = "\x1f\x8b", kXz{"\xfd\x37\x7a\x58\x5a\x00", 6}, kZstd = "\x28\xb5\x2f\xfd",
                           kBzip2 = "BZh", kSkippable = "\x2a\x4d\x18";

[[noreturn]] void truncated() {
  throw StreamFault{"it ends too early: it was cut off, or not copied completely"};
}
[[noreturn]] void damaged(std::string_view what) {
  throw StreamFault{fmt::format("it is damaged ({})", what)};
}
// Requires that the bytes after a stream begin another one. The libraries report other bytes only later.
void require_magic(std::string_view in, std::string_view magic) {
  if (!magic.starts_with(in.substr(0, magic.size()))) damaged("other data follows its end");
}

// Streams that the library decompresses one at a time. Zeros after the last one are padding, as on tapes.
class MemberDecompressor : public Decompressor {
 public:
  std::size_t run(std::string_view& in, std::span<char> out, bool last) final {
    if (!inside_) {
      if (after_one_ && (padded_ || in.starts_with('\0'))) {
        padded_ = true;
        in.remove_prefix(std::min(in.find_first_not_of('\0'), in.size()));
        if (!in.empty()) damaged("other data follows the zeros that pad its end");
      }
      if (in.empty()) return 0;
      if (after_one_) require_magic(in, magic());
      begin();
      inside_ = true;
    }
    const std::size_t before = in.size();
    std::size_t written = 0;
    if (step(in, out, written)) {
      inside_ = false;
      after_one_ = true;
    } else if (last && in.empty() && written == 0 && before == 0) {
      truncated();
    }
    return written;
  }

 protected:
  virtual std::string_view magic() const = 0;
  // Begins the next member.
  virtual void begin() = 0;
  // Returns true if the member ends.
  virtual bool step(std::string_view& in, std::span<char> out, std::size_t& written) = 0;

 private:
  bool inside_ = false, after_one_ = false, padded_ = false;
};

class Gzip final : public MemberDecompressor {
 public:
  Gzip() {
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

 protected:
  std::string_view magic() const override { return kGzip; }
  void begin() override { inflateReset(&stream_); }
  bool step(std::string_view& in, std::span<char> out, std::size_t& written) override {
    const std::size_t given = std::min(in.size(), kMost), space = std::min(out.size(), kMost);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(space);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    in.remove_prefix(given - stream_.avail_in);
    written = space - stream_.avail_out;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      damaged(stream_.msg ? stream_.msg : "zlib does not recognize it");
    return result == Z_STREAM_END;
  }

 private:
  z_stream stream_{};
};

class Bzip2 final : public MemberDecompressor {
 public:
  ~Bzip2() override { BZ2_bzDecompressEnd(&stream_); }

 protected:
  std::string_view magic() const override { return kBzip2; }
  void begin() override {
    BZ2_bzDecompressEnd(&stream_);
    stream_ = {};
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }
  bool step(std::string_view& in, std::span<char> out, std::size_t& written) override {
    const std::size_t given = std::min(in.size(), kMost), space = std::min(out.size(), kMost);
    stream_.next_in = const_cast<char*>(in.data());
    stream_.avail_in = static_cast<unsigned>(given);
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<unsigned>(space);
    const int result = BZ2_bzDecompress(&stream_);
    in.remove_prefix(given - stream_.avail_in);
    written = space - stream_.avail_out;
    if (result == BZ_MEM_ERROR) throw std::bad_alloc();
    if (result != BZ_OK && result != BZ_STREAM_END)
      damaged(result == BZ_DATA_ERROR_MAGIC ? "no bzip2 stream begins here" : "a checksum or a block is wrong");
    return result == BZ_STREAM_END;
  }

 private:
  bz_stream stream_{};
};

class Xz final : public Decompressor {
 public:
  Xz() { begin(); }
  ~Xz() override { lzma_end(&stream_); }
  Xz(const Xz&) = delete;
  Xz& operator=(const Xz&) = delete;

  std::size_t run(std::string_view& in, std::span<char> out, bool last) override {
    if (between_) {
      const std::size_t zeros = std::min(in.find_first_not_of('\0'), in.size());
      padding_ += zeros;
      in.remove_prefix(zeros);
      if (padding_ % 4 != 0 && (last || !in.empty()))
        damaged("the number of zeros after its end is not a multiple of four");
      if (in.empty()) return 0;
      require_magic(in, kXz);
      begin();
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const bool nothing_more = last && in.empty();
    const lzma_ret result = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    in.remove_prefix(in.size() - stream_.avail_in);
    const std::size_t written = out.size() - stream_.avail_out;
    between_ = result == LZMA_STREAM_END;
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    // The first call that makes no progress is not an error yet.
    if ((result == LZMA_OK || result == LZMA_BUF_ERROR) && nothing_more && written == 0) truncated();
    if (result != LZMA_OK && !between_ && result != LZMA_BUF_ERROR)
      damaged(result == LZMA_FORMAT_ERROR    ? "other data follows its end"
              : result == LZMA_OPTIONS_ERROR ? "it was made with options that liblzma does not know"
                                             : "a checksum or a block is wrong");
    return written;
  }

 private:
  void begin() {
    if (lzma_stream_decoder(&stream_, std::numeric_limits<std::uint64_t>::max(), 0) != LZMA_OK) throw std::bad_alloc();
    between_ = false;
    padding_ = 0;
  }

  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool between_ = false;  // between two streams, where padding with zeros is allowed
  std::size_t padding_ = 0;
};

class Zstd final : public Decompressor {
 public:
  Zstd() : context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
    // The limit of `zstd --long=31`, an option for large archives.
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, 31);
  }
  ~Zstd() override { ZSTD_freeDCtx(context_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  std::size_t run(std::string_view& in, std::span<char> out, bool last) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    // Without input, request only the rest of a frame, because a finished frame would begin again.
    if (in.empty() && wants_ == 0) return 0;
    if (wants_ == 0 && (in[0] & '\xf0') == '\x50')
      require_magic(in.substr(1), kSkippable);
    else if (wants_ == 0)
      require_magic(in, kZstd);
    wants_ = ZSTD_decompressStream(context_, &to, &from);
    if (ZSTD_isError(wants_)) damaged(ZSTD_getErrorName(wants_));
    const bool took_nothing = in.empty();
    in.remove_prefix(from.pos);
    if (last && took_nothing && to.pos == 0 && wants_ != 0) truncated();
    return to.pos;
  }

 private:
  ZSTD_DCtx* context_;
  std::size_t wants_ = 0;  // 0: between two frames
};

}  // namespace

std::string_view name_of(Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return "gzip";
    case Compression::zstd:
      return "zstd";
    case Compression::xz:
      return "xz";
    case Compression::bzip2:
      return "bzip2";
    case Compression::none:
      break;
  }
  return "";
}

Compression compression_of(std::string_view head) {
  if (head.starts_with(kGzip)) return Compression::gzip;
  if (head.starts_with(kXz)) return Compression::xz;
  if (head.starts_with(kZstd)) return Compression::zstd;
  // A file that zstd wrote in parts may begin with a skippable frame, 0x184D2A50 to 5F.
  if (head.size() > 3 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == kSkippable) return Compression::zstd;
  // A plain text may begin with "BZh9", but not with these bytes after it.
  if (head.size() >= 6 && head.starts_with("BZh") && head[3] >= '1' && head[3] <= '9' &&
      (head.substr(4, 2) == "1A" || head.substr(4, 2) == "\x17\x72"))
    return Compression::bzip2;
  return Compression::none;
}

std::unique_ptr<Decompressor> make_decompressor(Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return std::make_unique<Gzip>();
    case Compression::zstd:
      return std::make_unique<Zstd>();
    case Compression::xz:
      return std::make_unique<Xz>();
    case Compression::bzip2:
      return std::make_unique<Bzip2>();
    case Compression::none:
      break;
  }
  STRATA_CHECK(compression != Compression::none);
  return nullptr;
}

}  // namespace strata::text

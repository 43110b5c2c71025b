#pragma once
#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <string>

#include "text/input/input_bytes.h"

namespace strata::text::tests {

// One member or frame with `text`, written by the libraries themselves.
inline std::string compressed(Compression compression, const std::string& text) {
  std::string out(2 * text.size() + 4096, '\0');
  std::size_t size = out.size();
  bool good = true;
  switch (compression) {
    case Compression::none:
      return text;
    case Compression::gzip: {
      z_stream stream{};
      good = deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK;
      std::string in = text;
      stream.next_in = reinterpret_cast<Bytef*>(in.data());
      stream.avail_in = static_cast<uInt>(in.size());
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      good = good && deflate(&stream, Z_FINISH) == Z_STREAM_END;
      size = stream.total_out;
      deflateEnd(&stream);
      break;
    }
    case Compression::zstd: {
      ZSTD_CCtx* context = ZSTD_createCCtx();
      ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);  // as `zstd` does
      size = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
      good = !ZSTD_isError(size);
      ZSTD_freeCCtx(context);
      break;
    }
    case Compression::xz:
      size = 0;
      good = lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t*>(text.data()),
                                     text.size(), reinterpret_cast<std::uint8_t*>(out.data()), &size,
                                     out.size()) == LZMA_OK;
      break;
    case Compression::bzip2: {
      auto length = static_cast<unsigned>(out.size());
      std::string in = text;
      good =
          BZ2_bzBuffToBuffCompress(out.data(), &length, in.data(), static_cast<unsigned>(in.size()), 1, 0, 0) == BZ_OK;
      size = length;
      break;
    }
  }
  if (!good) std::abort();
  out.resize(size);
  return out;
}

}  // namespace strata::text::tests

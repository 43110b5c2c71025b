#include "runtime/checkpoint/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/file_system.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// Files of the second format have boxes that are not whole tensors.
constexpr std::string_view kShardFormat = "strata shard 1", kBoxFormat = "strata shard 2";
constexpr std::array<std::string_view, 6> kDTypes = {"F32", "BF16", "U8", "F16", "U8", "U8"};  // by StorageFormat

// Tells the formats stored as "U8" apart by their bytes for this number of elements.
device::StorageFormat block_format(std::uint64_t elements, std::uint64_t bytes) {
  for (const auto format : {device::StorageFormat::nf4, device::StorageFormat::nf4_plain})
    if (stored_bytes(format, elements) == bytes) return format;
  return device::StorageFormat::block8;
}

// "50257,768 0 19298688 0123456789abcdef...": shape, begin, end, checksums. If the box is not the whole tensor, its
// offset and its size follow the shape.
std::string place_text(const Extent& e) {
  std::string text = fmt::format("{} ", fmt::join(e.box.shape, ","));
  if (!e.box.is_full()) text += fmt::format("{} {} ", fmt::join(e.box.offset, ","), fmt::join(e.box.size, ","));
  text += fmt::format("{} {} ", e.begin, e.end);
  for (const std::uint64_t sum : e.checksums) text += fmt::format("{:016x}", sum);
  return text;
}

// Reads numbers and separators from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  bool number(std::uint64_t& out) {
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), out);
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return error == std::errc{};
  }
  bool hex16(std::uint64_t& out) {
    if (text_.size() < 16) return false;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + 16, out, 16);
    const bool whole = error == std::errc{} && end == text_.data() + 16;
    text_.remove_prefix(16);
    return whole;
  }
  bool skip(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool done() const { return text_.empty(); }

 private:
  std::string_view text_;
};

// "master/TENSOR", or "master/TENSOR[0,384]" for a box, with its offset: a file may have several boxes of a tensor.
std::string name_text(const Extent& e) {
  std::string name = e.kind + "/" + e.tensor;
  if (!e.box.is_full()) name += fmt::format("[{}]", fmt::join(e.box.offset, ","));
  return name;
}

// Reads "768,3072 ".
bool parse_sizes(Scanner& in, std::vector<std::uint64_t>& sizes) {
  for (sizes.clear(); !in.skip(' ');) {
    if (!sizes.empty() && !in.skip(',')) return false;
    if (!in.number(sizes.emplace_back())) return false;
  }
  return true;
}

bool parse_box(Scanner& in, bool whole, Box& box) {
  std::uint64_t elements = 1;
  if (!parse_sizes(in, box.shape)) return false;
  for (const std::uint64_t size : box.shape)
    if (__builtin_mul_overflow(elements, size, &elements)) return false;
  box = Box::full(std::move(box.shape));
  if (whole) return true;
  if (!parse_sizes(in, box.offset) || !parse_sizes(in, box.size)) return false;
  if (box.offset.size() != box.shape.size() || box.size.size() != box.shape.size()) return false;
  for (std::size_t d = 0; d < box.shape.size(); ++d)
    if (box.offset[d] >= box.shape[d] || box.size[d] < 1 || box.size[d] > box.shape[d] - box.offset[d]) return false;
  return !box.is_full();
}

bool parse_place(std::string_view text, Extent& e) {
  Scanner in(text);
  constexpr std::ptrdiff_t kSpacesOfBox = 5;
  if (!parse_box(in, std::ranges::count(text, ' ') != kSpacesOfBox, e.box)) return false;
  if (!in.number(e.begin) || !in.skip(' ') || !in.number(e.end) || !in.skip(' ')) return false;
  if (e.begin >= e.end || e.end > e.box.elements()) return false;
  for (std::size_t block = 0; block < e.blocks(); ++block)
    if (!in.hex16(e.checksums.emplace_back())) return false;
  return in.done();
}

// Determines the format of state stored in blocks; false if its size matches none.
bool has_its_bytes(Extent& e) {
  if (e.format == device::StorageFormat::block8) e.format = block_format(e.elements(), e.bytes);
  if (is_nf4(e.format) && e.begin % device::kNf4Block != 0) return false;
  return e.bytes == stored_bytes(e.format, e.elements());
}

}  // namespace

std::string_view stored_dtype(device::StorageFormat format) {
  return kDTypes[static_cast<std::size_t>(format)];
}

std::optional<device::StorageFormat> format_of(std::string_view dtype) {
  const auto found = std::ranges::find(kDTypes, dtype);
  if (found == kDTypes.end()) return {};
  return static_cast<device::StorageFormat>(found - kDTypes.begin());
}

std::string shard_header(std::span<const Extent> extents) {
  const bool whole = std::ranges::all_of(extents, [](const Extent& e) { return e.box.is_full(); });
  JsonObject metadata(JsonLayout::wrapped), header(JsonLayout::wrapped);
  metadata.add("format", whole ? kShardFormat : kBoxFormat);
  for (const Extent& e : extents) metadata.add(name_text(e), place_text(e));
  header.add("__metadata__", metadata);
  std::uint64_t at = 0;
  for (const Extent& e : extents) {
    const bool whole_bytes = stored_dtype(e.format) == "U8";
    header.add(name_text(e), JsonObject()
                                 .add("dtype", stored_dtype(e.format))
                                 .add("shape", JsonArray().add(whole_bytes ? e.bytes : e.elements()))
                                 .add("data_offsets", JsonArray().add(at).add(at + e.bytes)));
    at += e.bytes;
  }
  std::string text = header.text();
  const std::size_t padded =
      (8 + text.size() + kShardHeaderAlignment - 1) / kShardHeaderAlignment * kShardHeaderAlignment;
  text.resize(padded - 8, ' ');
  const std::uint64_t length = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + text;
}

std::vector<Extent> read_shard_header(const fs::path& path, const ShardEntry& promised) {
  {
    const ReadableFile file(path);
    if (file.bytes() != promised.bytes)
      fail(Exit::corrupt, "{}: expected {} bytes, found {}", path.string(), promised.bytes, file.bytes());
    std::vector<std::byte> header(promised.header_bytes);
    file.read(0, header);
    const std::uint64_t hash = XXH3_64bits(header.data(), header.size());
    if (hash != promised.header_hash)
      fail(Exit::corrupt, "{}: expected checksum {:016x} of the header, found {:016x}: the file is damaged",
           path.string(), promised.header_hash, hash);
  }
  const auto file = models::Safetensors::open(path);
  std::vector<Extent> out;
  for (const models::StoredTensor& tensor : file.tensors()) {
    const std::size_t slash = tensor.name.find('/');
    const auto place = file.metadata().find(tensor.name);
    Extent e;
    e.offset = tensor.file_offset;
    e.bytes = tensor.bytes.size();
    const auto format = format_of(tensor.dtype);
    e.format = format.value_or(e.format);
    if (!format || slash == std::string::npos || place == file.metadata().end() || !parse_place(place->second, e) ||
        e.begin % device::kMomentBlock != 0 || !has_its_bytes(e))
      fail(Exit::corrupt, "{}: expected the place of {} in its tensor, found {}", path.string(), tensor.name,
           place == file.metadata().end() ? "none" : place->second.substr(0, 64));
    e.kind = tensor.name.substr(0, slash);
    e.tensor = tensor.name.substr(slash + 1);
    if (!e.box.is_full()) e.tensor.erase(std::min(e.tensor.rfind('['), e.tensor.size()));
    if (name_text(e) != tensor.name)
      fail(Exit::corrupt, "{}: expected the entry {}, found {}", path.string(), name_text(e), tensor.name);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace strata::runtime

#include "models/files/quantisation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/quote.h"
#include "models/files/config.h"
#include "models/files/python.h"

namespace strata::models {
namespace {

bool is_plain(const std::string& pattern) {
  return pattern.find_first_of("*+?[](){}|^$\\") == std::string::npos;
}

// Throws Error{usage} if the pattern would be understood differently from transformers.
void require_pattern(const std::string& key, const std::string& pattern) {
  if (is_plain(pattern)) return;
  constexpr const char* kAdvice = "list the modules by their names there";
  constexpr std::size_t kLongest = 4096, kShown = 160;
  const std::string shown = excerpt(pattern, kShown);
  if (const auto syntax = foreign_syntax(pattern))
    fail(Exit::usage, "{} has \"{}\", a regular expression with {}, which is not supported: {}", key, shown, *syntax,
         kAdvice);
  const auto compiles = [&] {
    try {
      (void)matches_whole(pattern, "");
    } catch (const std::regex_error&) {  // its message names the library's limits, or a wrong cause
      return false;
    }
    return true;
  };
  if (pattern.size() > kLongest || !compiles())
    fail(Exit::usage, "{} has \"{}\", which is not a valid regular expression, or is too large: {}", key, shown,
         kAdvice);
}

}  // namespace

std::optional<Quantisation> quantisation_of(const Config& config) {
  const auto key = [](const char* name) { return std::string("quantization_config.") + name; };
  // bitsandbytes' first files name no method.
  const std::string method = config.json(key("quant_method"));
  if ((method != R"("bitsandbytes")" && method != "null") || config.json(key("load_in_4bit")) != "true")
    return std::nullopt;
  if (const std::string type = config.text_or(key("bnb_4bit_quant_type"), "fp4"); type != "nf4")
    fail(Exit::usage,
         "{} is \"{}\": of bitsandbytes' 4-bit formats only \"nf4\" is supported; quantise the model again with it, or "
         "give the original model",
         config.describe(key("bnb_4bit_quant_type")), type);
  const bool twice = config.bool_or(key("bnb_4bit_use_double_quant"), false);
  const std::string skipped = key("llm_int8_skip_modules");
  Quantisation out{twice ? device::StorageFormat::nf4 : device::StorageFormat::nf4_plain, config.texts(skipped)};
  for (const std::string& pattern : out.skipped) require_pattern(config.describe(skipped), pattern);
  return out;
}

namespace {

// True if a prefix of the name that ends with a module's name matches the regular expression.
bool begins_as(std::string_view name, const std::string& pattern) {
  const auto at_boundary = [&](std::size_t end) {
    return end == name.size() || name[end] == '.' || (end > 0 && name[end - 1] == '.');
  };
  if (is_plain(pattern)) return name.starts_with(pattern) && at_boundary(pattern.size());
  for (std::size_t end = 1; end <= name.size(); ++end)
    if (at_boundary(end) && matches_whole(pattern, name.substr(0, end))) return true;
  return false;
}

}  // namespace

bool lies_in(std::span<const std::string> modules, std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::ranges::any_of(
      modules, [&](const std::string& module) { return begins_as(tensor, module) || tensor.ends_with(module); });
}

namespace {

using device::kNf4Block, device::kNf4Scales, device::kScaleBlock;

constexpr const char* kQuantState = ".quant_state.bitsandbytes__nf4";
constexpr std::array<std::string_view, 5> kSuffixes = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
                                                       kQuantState};

[[noreturn]] void wrong(const StoredTensor& tensor, const std::string& expected, const std::string& found) {
  fail(Exit::corrupt, "{}: expected {} of tensor {}, found {}", tensor.file.string(), expected, tensor.name, found);
}

const StoredTensor& part(const Safetensors& file, const StoredTensor& codes, std::string_view suffix,
                         std::string_view dtype, std::uint64_t elements) {
  const StoredTensor* found = file.find(codes.name + std::string(suffix));
  if (!found) wrong(codes, fmt::format("the companion {}", suffix), "none");
  if (found->dtype != dtype || found->elements() != elements)
    wrong(*found, fmt::format("{} elements in {}", elements, dtype),
          fmt::format("{} in {}", found->elements(), found->dtype));
  return *found;
}

// The map must equal bitsandbytes' own, bit for bit.
template <typename Value>
void require_map(const StoredTensor& map, unsigned entries, Value&& value) {
  for (unsigned code = 0; code < entries; ++code) {
    float there;
    std::memcpy(&there, map.bytes.data() + code * sizeof there, sizeof there);
    if (std::bit_cast<std::uint32_t>(there) != std::bit_cast<std::uint32_t>(value(code)))
      fail(Exit::usage, "{}: {} has {} for code {}, but bitsandbytes' own map has {}: other maps are not supported",
           map.file.string(), map.name, there, code, value(code));
  }
}

void copy(const StoredTensor& from, std::uint64_t begin, std::size_t most, std::byte* to) {
  const std::uint64_t count = std::min<std::uint64_t>(most, from.bytes.size() - begin);
  std::memcpy(to, from.bytes.data() + begin, count);
}

}  // namespace

std::uint64_t Nf4Tensor::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n *= d;
  return n;
}

void Nf4Tensor::read_block(std::uint64_t begin, std::span<std::byte> block) const {
  STRATA_CHECK_EQ(begin % kNf4Block, 0u);
  STRATA_CHECK_EQ(block.size(), stored_bytes(format(), kNf4Block));
  std::ranges::fill(block, std::byte{0});
  const std::uint64_t number = begin / kNf4Block;
  std::byte* const to = block.data();
  if (shared) {
    copy(*shared, number * sizeof(float), sizeof(float), to);
    std::memcpy(to + sizeof(float), &offset, sizeof offset);
    copy(*scales, number * kNf4Scales, kNf4Scales, to + device::kNf4ScaleBytes);
  } else {
    copy(*scales, number * kNf4Scales * sizeof(float), kNf4Scales * sizeof(float), to);
  }
  copy(*codes, begin / 2, device::kNf4CodeBytes, to + (shared ? device::kNf4Codes : device::kNf4PlainCodes));
  MappedFile::release(codes_of(begin, kNf4Block));
}

std::span<const std::byte> Nf4Tensor::codes_of(std::uint64_t begin, std::uint64_t count) const {
  const std::uint64_t first = begin / 2, last = std::min<std::uint64_t>((begin + count + 1) / 2, codes->bytes.size());
  return codes->bytes.subspan(first, last - std::min(first, last));
}

bool is_unpacked_dtype(std::string_view name) {
  return name == "float32" || name == "bfloat16" || name == "float16";
}

bool is_nf4(const Safetensors& file, const std::string& name) {
  return file.find(name + kQuantState) != nullptr;
}

bool belongs_to_nf4(const Safetensors& file, std::string_view name) {
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) {
    return name.ends_with(suffix) && is_nf4(file, std::string(name.substr(0, name.size() - suffix.size())));
  });
}

Nf4Tensor nf4_tensor(const Safetensors& file, const std::string& name) {
  const StoredTensor* const codes = file.find(name);
  const StoredTensor* const state = file.find(name + kQuantState);
  STRATA_CHECK(codes && state);
  const std::string_view json(reinterpret_cast<const char*>(state->bytes.data()), state->bytes.size());
  const Config settings = Config::parse(json, fmt::format("{} of {}", state->name, state->file.string()));
  if (settings.text_or("quant_type", "") != "nf4" || settings.int_or("blocksize", 0) != kScaleBlock)
    fail(Exit::usage, "{}: {} has blocks of {} in \"{}\"; only blocks of {} in \"nf4\" are supported",
         state->file.string(), name, settings.int_or("blocksize", 0), settings.text_or("quant_type", ""), kScaleBlock);
  Nf4Tensor out{codes, nullptr};
  if (std::string dtype = settings.text_or("dtype", ""); is_unpacked_dtype(dtype)) out.dtype = std::move(dtype);
  for (const std::int64_t d : settings.integers("shape")) out.shape.push_back(static_cast<std::uint64_t>(d));
  const std::uint64_t n = out.elements(), blocks = (n + kScaleBlock - 1) / kScaleBlock;
  if (out.shape.empty() || codes->bytes.size() != (n + 1) / 2)
    wrong(*codes, fmt::format("{} bytes of codes for [{}]", (n + 1) / 2, fmt::join(out.shape, ", ")),
          fmt::format("{}", codes->bytes.size()));
  require_map(part(file, *codes, ".quant_map", "F32", 16), 16, [](unsigned code) { return device::kNf4Values[code]; });
  const bool nested = file.find(name + ".nested_absmax") != nullptr;
  out.scales = &part(file, *codes, ".absmax", nested ? "U8" : "F32", blocks);
  if (!nested) return out;
  if (const std::int64_t size = settings.int_or("nested_blocksize", 0); size != static_cast<std::int64_t>(kNf4Scales))
    fail(Exit::usage, "{}: the scales of {} have blocks of {}; only blocks of {} are supported", state->file.string(),
         name, size, kNf4Scales);
  out.shared = &part(file, *codes, ".nested_absmax", "F32", (blocks + kNf4Scales - 1) / kNf4Scales);
  require_map(part(file, *codes, ".nested_quant_map", "F32", 256), 256,
              [](unsigned code) { return device::scale_value(static_cast<std::uint8_t>(code)); });
  out.offset = static_cast<float>(settings.require_number("nested_offset"));
  constexpr float kMaxOffset = 65504;  // the largest number of fp16
  if (!(std::abs(out.offset) <= kMaxOffset))
    wrong(*state, "a nested_offset (the mean of the weights' scales) of at most 65504", fmt::format("{}", out.offset));
  return out;
}

}  // namespace strata::models

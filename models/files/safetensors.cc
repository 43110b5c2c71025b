#include "models/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json/json_fault.h"
#include "base/quantity.h"
#include "base/quote.h"

namespace strata::models {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the safetensors library's own limit
constexpr std::size_t kMaxHeaderDepth = 8;              // levels of JSON; a header needs 4
constexpr std::size_t kMaxRank = 8;

struct DTypeInfo {
  std::string_view name;
  std::uint64_t bits;
  std::optional<device::DType> type;
};
constexpr DTypeInfo kDTypes[] = {
    {"F32", 32, device::DType::fp32},
    {"BF16", 16, device::DType::bf16},
    {"F16", 16, device::DType::fp16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
};

// Reports a fault in a file: file, offset, expected, found.
[[noreturn]] void corrupt(const fs::path& file, std::uint64_t offset, const std::string& expected,
                          const std::string& found) {
  fail(Exit::corrupt, "{}, offset {}: expected {}, found {}", file.string(), offset, expected, found);
}

// The header: its length N in 8 bytes, then N bytes of JSON, then the tensors' bytes.
class Header {
 public:
  Header(const MappedFile& file) : path_(file.path()), bytes_(file.bytes()) {
    if (bytes_.size() < 8) corrupt(path_, 0, "the length of a safetensors header in 8 bytes", size_text());
    std::memcpy(&length_, bytes_.data(), 8);
    if (length_ > kMaxHeaderBytes) corrupt(path_, 0, "a header of at most 100,000,000 bytes", counted(length_, "byte"));
    if (length_ > bytes_.size() - 8) {
      corrupt(path_, 0, fmt::format("a header inside the file's {} bytes", bytes_.size()), counted(length_, "byte"));
    }
  }

  void parse(std::vector<StoredTensor>& tensors, std::map<std::string, std::string>& metadata) {
    simdjson::dom::parser parser;
    element root;
    auto error = parser.allocate(std::max<std::size_t>(length_, 64), kMaxHeaderDepth);
    if (error == simdjson::SUCCESS) {
      error = parser.parse(reinterpret_cast<const char*>(bytes_.data()) + 8, length_, true).get(root);
    }
    if (error == simdjson::DEPTH_ERROR) {
      corrupt(path_, 8, fmt::format("JSON of at most {} levels", kMaxHeaderDepth), "a deeper one");
    }
    if (error != simdjson::SUCCESS) {
      const auto* json = reinterpret_cast<const char*>(bytes_.data()) + 8;
      corrupt(path_, 8, "a JSON header", found_in_json({json, length_}, kMaxHeaderDepth));
    }
    simdjson::dom::object object;
    if (root.get_object().get(object) != simdjson::SUCCESS) corrupt(path_, 8, "a JSON object", "another value");
    const std::size_t first = tensors.size();
    for (const auto field : object) {
      if (field.key == "__metadata__") {
        add_metadata(field.value, metadata);
      } else {
        tensors.push_back(tensor(std::string(field.key), field.value));
      }
    }
    check_layout({tensors.data() + first, tensors.size() - first});
  }

 private:
  std::string size_text() const { return fmt::format("a file of {} bytes", bytes_.size()); }
  std::uint64_t data_offset() const { return 8 + length_; }

  void add_metadata(element node, std::map<std::string, std::string>& metadata) const {
    simdjson::dom::object object;
    if (node.get_object().get(object) != simdjson::SUCCESS) {
      corrupt(path_, 8, "__metadata__ to be an object", simdjson::minify(node).substr(0, 64));
    }
    for (const auto field : object) {
      std::string_view text;
      if (field.value.get_string().get(text) != simdjson::SUCCESS) {
        corrupt(path_, 8, fmt::format("__metadata__.{} to be a string", field.key), "another value");
      }
      metadata.insert_or_assign(std::string(field.key), std::string(text));
    }
  }

  std::vector<std::uint64_t> integers(const std::string& name, const char* field, element node,
                                      std::size_t most) const {
    simdjson::dom::array array;
    std::vector<std::uint64_t> out;
    bool good = node.get_array().get(array) == simdjson::SUCCESS && array.size() <= most;
    if (good) {
      for (const element item : array) {
        std::uint64_t value = 0;
        good = good && item.get_uint64().get(value) == simdjson::SUCCESS;
        out.push_back(value);
      }
    }
    if (!good) {
      corrupt(path_, 8, fmt::format("{} of tensor {} to be at most {} whole numbers", field, name, most),
              simdjson::minify(node).substr(0, 64));
    }
    return out;
  }

  StoredTensor tensor(std::string name, element node) const {
    StoredTensor out;
    out.name = std::move(name);
    out.file = path_;
    element dtype, shape, offsets;
    std::string_view dtype_name;
    if (node["dtype"].get(dtype) != simdjson::SUCCESS || dtype.get_string().get(dtype_name) != simdjson::SUCCESS ||
        node["shape"].get(shape) != simdjson::SUCCESS || node["data_offsets"].get(offsets) != simdjson::SUCCESS) {
      corrupt(path_, 8, fmt::format("dtype, shape and data_offsets of tensor {}", out.name),
              simdjson::minify(node).substr(0, 64));
    }
    const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                    [&](const DTypeInfo& info) { return info.name == dtype_name; });
    if (known == std::end(kDTypes)) {
      corrupt(path_, 8, fmt::format("a dtype of safetensors for tensor {}", out.name), std::string(dtype_name));
    }
    out.dtype = known->name;
    out.type = known->type;
    out.shape = integers(out.name, "shape", shape, kMaxRank);
    const auto range = integers(out.name, "data_offsets", offsets, 2);
    const std::uint64_t data_bytes = bytes_.size() - data_offset();
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes) {
      corrupt(path_, 8, fmt::format("data_offsets of tensor {} inside the {} bytes of data", out.name, data_bytes),
              fmt::format("[{}]", fmt::join(range, ", ")));
    }
    std::uint64_t size = known->bits / 8;
    for (const std::uint64_t dimension : out.shape) {
      if (__builtin_mul_overflow(size, dimension, &size)) size = std::numeric_limits<std::uint64_t>::max();
      if (dimension != 0 && size == std::numeric_limits<std::uint64_t>::max()) break;
    }
    // A later dimension of 0 cannot hide an overflow: the check above comes first, and no file is that long.
    if (size != range[1] - range[0]) {
      const bool overflows = size == std::numeric_limits<std::uint64_t>::max();
      corrupt(path_, data_offset() + range[0],
              fmt::format("{} for tensor {} of shape [{}] in {}", overflows ? "more bytes" : counted(size, "byte"),
                          out.name, fmt::join(out.shape, ", "), out.dtype),
              counted(range[1] - range[0], "byte"));
    }
    out.file_offset = data_offset() + range[0];
    out.bytes = bytes_.subspan(out.file_offset, size);
    return out;
  }

  // The tensors cover the data from its first byte to the file's end, without overlap.
  void check_layout(std::span<const StoredTensor> tensors) const {
    std::vector<const StoredTensor*> order;
    std::set<std::string_view> names;
    for (const StoredTensor& t : tensors) {
      if (!names.insert(t.name).second) corrupt(path_, 8, fmt::format("one tensor named {}", t.name), "two");
      order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
      return std::pair(a->file_offset, a->bytes.size()) < std::pair(b->file_offset, b->bytes.size());
    });
    std::uint64_t end = data_offset();
    std::string before = "the header";
    for (const StoredTensor* t : order) {
      if (t->file_offset != end) {
        corrupt(path_, t->file_offset, fmt::format("tensor {} right after {}, at {}", t->name, before, end),
                t->file_offset < end ? "that they overlap" : "a hole between them");
      }
      end += t->bytes.size();
      before = "tensor " + t->name;
    }
    if (end != bytes_.size()) {
      corrupt(path_, end, fmt::format("the end of the file after {}", before),
              fmt::format("{} bytes more", bytes_.size() - end));
    }
  }

  const fs::path& path_;
  std::span<const std::byte> bytes_;
  std::uint64_t length_ = 0;
};

}  // namespace

std::uint64_t StoredTensor::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t dimension : shape) n *= dimension;
  return n;
}

Safetensors Safetensors::open(const fs::path& path) {
  Safetensors out;
  out.path_ = path;
  const fs::path index = path / "model.safetensors.index.json", whole = path / "model.safetensors";
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (path.string().ends_with(".safetensors.index.json")) {
      out.add_index(path);
    } else {
      out.add_file(path);
    }
  } else if (fs::exists(whole, ignored)) {
    out.add_file(whole);
  } else if (fs::exists(index, ignored)) {
    out.add_index(index);
  } else if (fs::exists(path / "pytorch_model.bin", ignored) ||
             fs::exists(path / "pytorch_model.bin.index.json", ignored)) {
    fail(Exit::usage,
         "{} contains its weights as pickle (pytorch_model.bin), which can run code when it is read; save a "
         "copy of the folder with safetensors, and give that: {}",
         path.string(),
         python_command("import shutil, transformers as t; c = t.AutoConfig.from_pretrained(argv[1]); "
                        "m = getattr(t, c.architectures[0]).from_pretrained(argv[1], torch_dtype='auto'); "
                        "shutil.copytree(argv[1], argv[2], ignore=shutil.ignore_patterns('pytorch_model*')); "
                        "m.save_pretrained(argv[2])",
                        {path.string(), (path / "").parent_path().string() + "-safetensors"}));
  } else if (fs::is_symlink(whole, ignored) || fs::is_symlink(index, ignored)) {
    (void)MappedFile(fs::is_symlink(whole, ignored) ? whole : index);  // for its error, which says where the link leads
  } else if (fs::exists(path / "adapter_config.json", ignored) ||
             fs::exists(path / "adapter_model.safetensors", ignored)) {
    fail(Exit::usage,
         "{} holds an adapter (LoRA), which is a difference from another model: give that model, and the adapter as "
         "adapter.path (eval, generate and predict: --adapter)",
         path.string());
  } else {
    fail(Exit::usage, "{} has neither model.safetensors nor model.safetensors.index.json", path.string());
  }
  std::sort(out.tensors_.begin(), out.tensors_.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(out.tensors_.begin(), out.tensors_.end(),
                                        [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
  if (twice != out.tensors_.end()) {
    corrupt(twice->file, 8, fmt::format("tensor {} in one file", twice->name),
            fmt::format("it in {} as well", (twice + 1)->file.string()));
  }
  return out;
}

void Safetensors::add_file(const fs::path& file) {
  files_.emplace_back(file);
  Header(files_.back()).parse(tensors_, metadata_);
}

void Safetensors::add_index(const fs::path& index) {
  const MappedFile file(index);
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxHeaderBytes) {
    corrupt(index, 0, "an index of at most 100,000,000 bytes", fmt::format("{} bytes", bytes.size()));
  }
  const std::string_view json(bytes.empty() ? "" : reinterpret_cast<const char*>(bytes.data()), bytes.size());
  simdjson::dom::parser parser;
  element root;
  auto error = parser.allocate(std::max<std::size_t>(bytes.size(), 64), kMaxHeaderDepth);
  if (error == simdjson::SUCCESS) {
    error = parser.parse(json.data(), json.size(), true).get(root);
  }
  if (error != simdjson::SUCCESS) corrupt(index, 0, "a JSON index", found_in_json(json, kMaxHeaderDepth));
  simdjson::dom::object weights;
  if (root["weight_map"].get_object().get(weights) != simdjson::SUCCESS) {
    corrupt(index, 0, "an object weight_map", "none");
  }
  std::map<std::string, std::string, std::less<>> where;  // tensor -> shard
  std::set<std::string> shards;
  for (const auto field : weights) {
    std::string_view shard;
    if (field.value.get_string().get(shard) != simdjson::SUCCESS || shard.empty() || shard == "." || shard == ".." ||
        shard.find('/') != std::string_view::npos || shard.find('\0') != std::string_view::npos) {
      corrupt(index, 0, fmt::format("the name of a file in the folder of the index for tensor {}", field.key),
              simdjson::minify(field.value).substr(0, 64));
    }
    where.insert_or_assign(std::string(field.key), std::string(shard));
    shards.emplace(shard);
  }
  for (const std::string& shard : shards) {
    const fs::path path = index.parent_path() / shard;
    std::error_code ignored;
    if (!fs::exists(path, ignored) && !fs::is_symlink(path, ignored))
      corrupt(index, 0, fmt::format("the file {}", path.string()), "no such file");
    add_file(path);
  }
  for (const StoredTensor& t : tensors_) {
    const auto found = where.find(t.name);
    if (found == where.end() || found->second != t.file.filename()) {
      corrupt(index, 0, fmt::format("tensor {} of {} in weight_map", t.name, t.file.filename().string()),
              found == where.end() ? "nothing" : found->second);
    }
    where.erase(found);
  }
  if (!where.empty()) {
    const auto& [name, shard] = *where.begin();
    corrupt(index.parent_path() / shard, 8, fmt::format("tensor {}, which the index lists", name), "none");
  }
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& t, std::string_view wanted) { return std::string_view(t.name) < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const StoredTensor& Safetensors::require(std::string_view name, std::span<const std::uint64_t> shape) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) {
    corrupt(path_, 8, fmt::format("tensor {}", name), fmt::format("{} tensors, but not this one", tensors_.size()));
  }
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
    corrupt(tensor->file, tensor->file_offset, fmt::format("tensor {} of shape [{}]", name, fmt::join(shape, ", ")),
            fmt::format("shape [{}]", fmt::join(tensor->shape, ", ")));
  }
  if (!tensor->readable()) {
    const bool packed = tensor->dtype == "I8" || tensor->dtype == "U8" || tensor->dtype.starts_with("F8") ||
                        tensor->dtype.starts_with("F4");
    if (packed)
      fail(Exit::usage,
           "{}: tensor {} is stored as {}, quantised: give the original model, or one that was converted "
           "back to bfloat16 (dequantize)",
           tensor->file.string(), name, tensor->dtype);
    corrupt(tensor->file, tensor->file_offset, fmt::format("tensor {} in F64, F32, BF16 or F16", name), tensor->dtype);
  }
  return *tensor;
}

std::uint64_t Safetensors::file_bytes() const {
  std::uint64_t total = 0;
  for (const MappedFile& file : files_) total += file.bytes().size();
  return total;
}

void read_elements(const StoredTensor& tensor, std::uint64_t begin, std::span<float> out) {
  STRATA_CHECK(tensor.readable());
  STRATA_CHECK_LE(begin + out.size(), tensor.elements());
  const auto convert = [&](auto zero, auto&& to_float) {
    using T = decltype(zero);
    const std::byte* from = tensor.bytes.data() + begin * sizeof(T);
    for (std::size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));  // the data need not be aligned
      out[i] = to_float(value);
    }
  };
  if (tensor.is_double()) return convert(0.0, [](double x) { return static_cast<float>(x); });
  device::visit(*tensor.type, [&](auto zero) { convert(zero, [](auto x) { return device::to_float(x); }); });
}

bool same_values(const StoredTensor& a, const StoredTensor& b) {
  if (!a.readable() || !b.readable() || a.shape != b.shape) return false;
  if (a.dtype == b.dtype && std::ranges::equal(a.bytes, b.bytes)) return true;
  std::array<float, 4096> of_a, of_b;
  for (std::uint64_t begin = 0; begin < a.elements(); begin += of_a.size()) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(of_a.size(), a.elements() - begin));
    read_elements(a, begin, std::span(of_a).first(count));
    read_elements(b, begin, std::span(of_b).first(count));
    if (!std::ranges::equal(std::span(of_a).first(count), std::span(of_b).first(count))) return false;
  }
  return true;
}

}  // namespace strata::models

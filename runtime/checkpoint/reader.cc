#include "runtime/checkpoint/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "runtime/checkpoint/folder.h"

namespace strata::runtime {

namespace fs = std::filesystem;

// A shard file open for reading.
class Checkpoint::File {
 public:
  explicit File(fs::path path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail(Exit::failed, "{} cannot be opened: {}", path_.string(), std::strerror(errno));
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;

  const fs::path& path() const { return path_; }

  void read(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(Exit::failed, "{} cannot be read at offset {}: {}", path_.string(), offset, std::strerror(errno));
      if (n == 0) fail(Exit::corrupt, "{} was cut: it ends at offset {}", path_.string(), offset);
      offset += static_cast<std::uint64_t>(n);
      out = out.subspan(static_cast<std::size_t>(n));
    }
  }

  void prefetch(std::uint64_t offset, std::uint64_t bytes) const {
    // Advice only: where the system does not take it, reads are as right as before.
    (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }

 private:
  fs::path path_;
  int fd_;
};

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

Checkpoint::Checkpoint(fs::path path) : path_(std::move(path)), manifest_(read_manifest(path_)) {
  for (const ShardEntry& file : manifest_.files) add_file(file);
  for (auto& [kind, tensors] : kinds_)
    for (auto& [name, extents] : tensors)
      std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  require_coverage();
}

void Checkpoint::add_file(const ShardEntry& promised) {
  const fs::path file = path_ / promised.name;
  for (Extent& extent : read_shard_header(file, promised)) {
    extent.file = files_.size();
    kinds_[extent.kind][extent.tensor].push_back(std::move(extent));
  }
  files_.emplace_back(file);
}

void Checkpoint::require_coverage() const {
  const auto wrong = [&](const std::string& kind, const std::string& tensor, const std::string& expected,
                         const std::string& found) {
    fail(Exit::corrupt, "{}: expected {} of {} of tensor {}, found {}", path_.string(), expected, kind, tensor, found);
  };
  if (!kinds_.contains("master")) wrong("master", "any", "the extents", "none");
  for (const auto& [kind, tensors] : kinds_) {
    for (const TensorEntry& tensor : manifest_.tensors) {
      std::uint64_t end = 0;
      if (const auto found = tensors.find(tensor.name); found != tensors.end())
        for (const Extent& e : found->second) {
          if (e.begin != end) wrong(kind, tensor.name, fmt::format("element {}", end), fmt::format("{}", e.begin));
          if (e.shape != tensor.shape) wrong(kind, tensor.name, "the shape", fmt::format("{}", e.shape));
          end = e.end;
        }
      if (end != tensor.elements())
        wrong(kind, tensor.name, fmt::format("{} elements", tensor.elements()), fmt::format("{}", end));
    }
    if (tensors.size() != manifest_.tensors.size())
      wrong(kind, "any", fmt::format("{} tensors", manifest_.tensors.size()), fmt::format("{}", tensors.size()));
  }
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t sum = fs::file_size(path_ / kManifestName);
  for (const ShardEntry& file : manifest_.files) sum += file.bytes;
  return sum;
}

std::vector<std::string> Checkpoint::kinds() const {
  std::vector<std::string> out;
  for (const auto& [kind, tensors] : kinds_) out.push_back(kind);
  return out;
}

std::span<const Extent> Checkpoint::extents(std::string_view kind, std::string_view tensor) const {
  const auto of_kind = kinds_.find(kind);
  if (of_kind == kinds_.end()) return {};
  const auto found = of_kind->second.find(tensor);
  return found == of_kind->second.end() ? std::span<const Extent>{} : found->second;
}

std::span<const std::byte> Checkpoint::read_block(const Extent& extent, std::size_t block,
                                                  std::span<std::byte> buffer) const {
  const std::uint64_t begin = block * kBlockBytes;
  STRATA_CHECK_LT(block, extent.blocks());
  const auto bytes = buffer.first(std::min<std::uint64_t>(kBlockBytes, extent.bytes - begin));
  const File& file = files_[extent.file];
  file.read(extent.offset + begin, bytes);
  if (const std::uint64_t sum = XXH3_64bits(bytes.data(), bytes.size()); sum != extent.checksums[block])
    fail(Exit::corrupt,
         "{}, offset {}: expected checksum {:016x} of {}/{}, found {:016x}: the file is damaged; name an "
         "older checkpoint if there is one beside it",
         file.path().string(), extent.offset + begin, extent.checksums[block], extent.kind, extent.tensor, sum);
  return bytes;
}

void Checkpoint::prefetch_block(const Extent& extent, std::size_t block) const {
  const std::uint64_t begin = block * kBlockBytes;
  files_[extent.file].prefetch(extent.offset + begin, std::min<std::uint64_t>(kBlockBytes, extent.bytes - begin));
}

void Checkpoint::prefetch(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                          std::uint64_t count) const {
  for (const Extent& e : extents(kind, tensor)) {
    const std::uint64_t from = std::max(e.begin, begin), to = std::min(e.end, begin + count);
    if (from >= to || e.dtype != "F32") continue;
    const std::uint64_t first = (from - e.begin) * sizeof(float), last = (to - e.begin) * sizeof(float);
    for (std::uint64_t block = first / kBlockBytes; block * kBlockBytes < last; ++block) prefetch_block(e, block);
  }
}

void Checkpoint::read(std::string_view kind, std::string_view tensor, std::uint64_t begin, std::span<float> out) const {
  const std::uint64_t end = begin + out.size();
  std::uint64_t done = begin;
  std::vector<std::byte> buffer(kBlockBytes);
  for (const Extent& e : extents(kind, tensor)) {
    if (e.end <= begin || e.begin >= end) continue;
    if (e.dtype != "F32")
      fail(Exit::corrupt, "{}: expected {} of tensor {} in F32, found {}", path_.string(), kind, tensor, e.dtype);
    constexpr std::size_t kInBlock = kBlockBytes / sizeof(float);
    const std::uint64_t from = std::max(e.begin, begin), to = std::min(e.end, end);
    for (std::size_t block = (from - e.begin) / kInBlock; e.begin + block * kInBlock < to; ++block) {
      const std::uint64_t first = e.begin + block * kInBlock;
      const auto bytes = read_block(e, block, buffer);
      const std::uint64_t a = std::max(from, first), b = std::min(to, first + bytes.size() / sizeof(float));
      std::memcpy(&out[a - begin], bytes.data() + (a - first) * sizeof(float), (b - a) * sizeof(float));
      done += b - a;
    }
  }
  STRATA_CHECK_EQ(done, end);  // a stretch of the tensor: require_coverage()
}

void require_same_tensors(const Checkpoint& checkpoint, const models::Model& model) {
  const std::vector<TensorEntry> wanted = tensors_of(model);
  const std::vector<TensorEntry>& stored = checkpoint.manifest().tensors;
  const auto text = [](const std::vector<TensorEntry>& list, std::size_t i) {
    return i < list.size() ? fmt::format("{} {}", list[i].name, list[i].shape) : std::string("no further tensor");
  };
  for (std::size_t i = 0; i < std::max(wanted.size(), stored.size()); ++i)
    if (text(wanted, i) != text(stored, i))
      fail(Exit::usage,
           "{} is another model's checkpoint: it holds {} where the recipe's model has {}; give its own recipe or "
           "another checkpoint.dir",
           checkpoint.path().string(), text(stored, i), text(wanted, i));
}

namespace {

class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const Checkpoint& checkpoint, const models::Model& model) : checkpoint_(checkpoint), model_(model) {
    require_same_tensors(checkpoint, model);
  }
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    checkpoint_.read("master", model_.units[unit]->parameters()[parameter].name, begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    checkpoint_.prefetch("master", model_.units[unit]->parameters()[parameter].name, begin, count);
  }

 private:
  const Checkpoint& checkpoint_;
  const models::Model& model_;
};

}  // namespace

std::unique_ptr<WeightSource> checkpoint_weights(const Checkpoint& checkpoint, const models::Model& model) {
  return std::make_unique<CheckpointWeights>(checkpoint, model);
}

}  // namespace strata::runtime

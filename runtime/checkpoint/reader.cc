#include "runtime/checkpoint/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/weights/floats.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {

namespace fs = std::filesystem;

// The files of a checkpoint, opened on demand; only the most recently read stay open, because a checkpoint of a
// thousand ranks has a thousand files and a process may be limited to 256. Thread-safe.
class Checkpoint::OpenFiles {
 public:
  std::size_t add(fs::path path) {
    paths_.push_back(std::move(path));
    return paths_.size() - 1;
  }
  std::shared_ptr<const ReadableFile> at(std::size_t i) {
    if (auto open = find(i)) return open;
    // Open without the mutex, because a network file system may take a while.
    auto opened = std::make_shared<const ReadableFile>(paths_[i]);
    const std::lock_guard lock(mutex_);
    open_.emplace_front(i, opened);
    if (open_.size() > kMaxOpen) open_.pop_back();
    return opened;
  }

 private:
  static constexpr std::size_t kMaxOpen = 32;

  std::shared_ptr<const ReadableFile> find(std::size_t i) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(open_.begin(), open_.end(), [&](const auto& entry) { return entry.first == i; });
    if (found == open_.end()) return nullptr;
    open_.splice(open_.begin(), open_, found);
    return found->second;
  }

  std::vector<fs::path> paths_;
  std::mutex mutex_;
  std::list<std::pair<std::size_t, std::shared_ptr<const ReadableFile>>> open_;  // most recently used first
};

namespace {

std::optional<CheckpointHold> hold_for_reading(const fs::path& path) {
  auto hold = CheckpointHold::to_read(path);
  if (!hold) fail(Exit::corrupt, "{} has just been removed: name a newer one in the same folder", path.string());
  return hold;
}

// The byte offset of an element or, in nf4, of the block that contains it.
std::uint64_t bytes_before(device::StorageFormat format, std::uint64_t element) {
  return stored_bytes(format, is_nf4(format) ? element / device::kNf4Block * device::kNf4Block : element);
}

// The smallest range of the extent's elements that covers all of them in `wanted`: first and end; empty if first >=
// end.
std::pair<std::uint64_t, std::uint64_t> covering(const Extent& e, const BoxRange& wanted) {
  std::uint64_t first = e.end, end = e.begin;
  for_common(e.range(), wanted, [&](std::uint64_t at, std::uint64_t, std::uint64_t count) {
    first = std::min(first, at);
    end = at + count;
  });
  return {first, end};
}

}  // namespace

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

Checkpoint::Checkpoint(fs::path path)
    : path_(std::move(path)),
      hold_(hold_for_reading(path_)),
      manifest_(read_manifest(path_)),
      files_(std::make_unique<OpenFiles>()) {
  for (const ShardEntry& file : manifest_.files) add_file(file);
  for (auto& [kind, tensors] : kinds_)
    for (auto& [name, extents] : tensors)
      std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
        return std::tie(a.box.offset, a.box.size, a.begin) < std::tie(b.box.offset, b.box.size, b.begin);
      });
  require_coverage();
}

void Checkpoint::add_file(const ShardEntry& promised) {
  const fs::path path = path_ / promised.name;
  const std::size_t file = files_->add(path);
  for (Extent& extent : read_shard_header(path, promised)) {
    extent.file = file;
    kinds_[extent.kind][extent.tensor].push_back(std::move(extent));
  }
}

void Checkpoint::require_coverage() const {
  const auto wrong = [&](const std::string& kind, const std::string& tensor, const std::string& expected,
                         const std::string& found) {
    fail(Exit::corrupt, "{}: expected {} of {} of tensor {}, found {}", path_.string(), expected, kind, tensor, found);
  };
  if (!kinds_.contains("master")) wrong("master", "any", "the extents", "none");
  for (const auto& [kind, tensors] : kinds_) {
    std::size_t expected = 0;
    for (const TensorEntry& tensor : manifest_.tensors) {
      if (tensor.frozen && (kind != "master" || !manifest_.base_hash.empty())) continue;
      ++expected;
      std::uint64_t end = 0, covered = 0;
      std::vector<const Extent*> boxes;  // the first extent of each
      if (const auto found = tensors.find(tensor.name); found != tensors.end())
        for (const Extent& e : found->second) {
          if (!splits(e.box.shape, tensor.shape) || (!boxes.empty() && e.box.shape != boxes[0]->box.shape))
            wrong(kind, tensor.name, "the shape", fmt::format("{}", e.box.shape));
          if (!boxes.empty() && e.format != boxes[0]->format)
            wrong(kind, tensor.name, "one dtype", std::string(stored_dtype(e.format)));
          if (boxes.empty() || e.box != boxes.back()->box) {
            for (const Extent* other : boxes)
              if (e.box.overlaps(other->box))
                wrong(kind, tensor.name, "each element once", fmt::format("those at {} twice", e.box.offset));
            boxes.push_back(&e);
            end = 0;
          }
          if (e.begin != end) wrong(kind, tensor.name, fmt::format("element {}", end), fmt::format("{}", e.begin));
          end = e.end;
          covered += e.elements();
        }
      if (covered != tensor.elements())
        wrong(kind, tensor.name, fmt::format("{} elements", tensor.elements()), fmt::format("{}", covered));
    }
    if (tensors.size() != expected)
      wrong(kind, "any", fmt::format("{} tensors", expected), fmt::format("{}", tensors.size()));
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
  return checked_block(extent, block, buffer, kNameOlder);
}

std::span<const std::byte> Checkpoint::checked_block(const Extent& extent, std::size_t block,
                                                     std::span<std::byte> buffer, std::string_view advice) const {
  const std::uint64_t begin = block * kBlockBytes;
  STRATA_CHECK_LT(block, extent.blocks());
  const auto bytes = buffer.first(std::min<std::uint64_t>(kBlockBytes, extent.bytes - begin));
  const auto file = files_->at(extent.file);
  file->read(extent.offset + begin, bytes);
  if (const std::uint64_t sum = XXH3_64bits(bytes.data(), bytes.size()); sum != extent.checksums[block])
    fail(Exit::corrupt, "{}, offset {}: expected checksum {:016x} of {}/{}, found {:016x}: the file is damaged{}",
         file->path().string(), extent.offset + begin, extent.checksums[block], extent.kind, extent.tensor, sum,
         advice);
  return bytes;
}

void Checkpoint::verify(int threads, const Advance& advance) const {
  std::vector<std::pair<const Extent*, std::size_t>> blocks;
  for (const auto& [kind, tensors] : kinds_)
    for (const auto& [name, extents] : tensors)
      for (const Extent& extent : extents)
        for (std::size_t block = 0; block < extent.blocks(); ++block) blocks.emplace_back(&extent, block);
  // Blocks are read in their order on the drive.
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first->file, a.first->offset, a.second) < std::tuple(b.first->file, b.first->offset, b.second);
  });
  const auto prefetch = [&](std::size_t i) { prefetch_block(*blocks[i].first, blocks[i].second); };
  ProgressCounter progress(advance, bytes());
  parallel_reads(blocks.size(), threads, prefetch, [&](std::size_t i) {
    std::vector<std::byte> buffer(kBlockBytes);
    // No advice: newest_undamaged() looks for an older checkpoint itself.
    progress.add(checked_block(*blocks[i].first, blocks[i].second, buffer, "").size());
  });
}

void Checkpoint::prefetch_block(const Extent& extent, std::size_t block) const {
  const std::uint64_t begin = block * kBlockBytes;
  files_->at(extent.file)->prefetch(extent.offset + begin, std::min<std::uint64_t>(kBlockBytes, extent.bytes - begin));
}

void Checkpoint::prefetch(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                          std::uint64_t count) const {
  for (const Extent& e : extents(kind, tensor)) {
    if (e.format == device::StorageFormat::block8) continue;
    const auto [from, to] = covering(e, {Box::full(e.box.shape), begin, begin + count});
    if (from >= to) continue;
    const std::uint64_t first = bytes_before(e.format, from - e.begin), last = stored_bytes(e.format, to - e.begin);
    for (std::uint64_t block = first / kBlockBytes; block * kBlockBytes < last; ++block) prefetch_block(e, block);
  }
}

std::vector<std::byte> Checkpoint::read_bytes(const Extent& e, std::uint64_t begin, std::uint64_t end) const {
  std::vector<std::byte> buffer(kBlockBytes), stored;
  for (std::uint64_t block = begin / kBlockBytes; block * kBlockBytes < end; ++block) {
    const auto bytes = read_block(e, block, buffer);
    const std::uint64_t at = block * kBlockBytes, a = std::max(begin, at), b = std::min(end, at + bytes.size());
    stored.insert(stored.end(), bytes.begin() + static_cast<std::ptrdiff_t>(a - at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(b - at));
  }
  return stored;
}

void Checkpoint::read_nf4_block(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                                std::span<std::byte> block) const {
  for (const Extent& e : extents(kind, tensor)) {
    if (begin < e.begin || begin >= e.end) continue;
    const std::uint64_t at = stored_bytes(e.format, begin - e.begin);
    return void(std::ranges::copy(read_bytes(e, at, at + block.size()), block.begin()));
  }
  STRATA_CHECK(!"a block of a tensor");
}

void Checkpoint::read_elements(std::string_view kind, std::string_view tensor, std::uint64_t begin,
                               std::span<std::byte> out) const {
  std::uint64_t done = 0;
  std::vector<std::byte> buffer(kBlockBytes);
  for (const Extent& e : extents(kind, tensor)) {
    STRATA_CHECK(e.format != device::StorageFormat::block8 && !is_nf4(e.format));
    const std::uint64_t size = stored_bytes(e.format, 1);
    const Box full = Box::full(e.box.shape);
    std::span<const std::byte> block;
    std::uint64_t block_begin = 0;  // in bytes of the extent
    const auto copy = [&](std::uint64_t at, std::uint64_t full_index, std::uint64_t count) {
      std::uint64_t from = (at - e.begin) * size, to = (full_index - begin) * size;
      for (const std::uint64_t end = from + count * size; from < end;) {
        if (block.empty() || from - block_begin >= block.size() || from < block_begin) {
          block = read_block(e, from / kBlockBytes, buffer);
          block_begin = from / kBlockBytes * kBlockBytes;
        }
        const std::uint64_t n = std::min(end - from, block_begin + block.size() - from);
        std::memcpy(out.data() + to, block.data() + (from - block_begin), n);
        from += n;
        to += n;
        done += n;
      }
    };
    for_common(e.range(), {full, begin, begin + out.size() / size}, copy);
  }
  STRATA_CHECK_EQ(done, out.size());  // require_coverage() proved it
}

void Checkpoint::read(std::string_view kind, std::string_view tensor, std::uint64_t begin, std::span<float> out) const {
  const std::span<const Extent> all = extents(kind, tensor);
  STRATA_CHECK(!all.empty());
  const device::StorageFormat format = all[0].format;
  if (format == device::StorageFormat::block8)
    fail(Exit::corrupt, "{}: expected {} of tensor {} in F32, BF16 or F16, found {}", path_.string(), kind, tensor,
         stored_dtype(format));
  if (!is_nf4(format)) {
    std::vector<std::byte> bytes(stored_bytes(format, out.size()));
    read_elements(kind, tensor, begin, bytes);
    std::ranges::copy(floats_of(format, bytes), out.begin());
    return;
  }
  std::uint64_t done = 0;
  for (const Extent& e : all) {
    const BoxRange wanted{Box::full(e.box.shape), begin, begin + out.size()};
    const auto [first, last] = covering(e, wanted);
    if (first >= last) continue;
    const std::uint64_t from = (first - e.begin) / device::kNf4Block * device::kNf4Block;
    const std::vector<float> values =
        floats_of(format, read_bytes(e, stored_bytes(format, from), stored_bytes(format, last - e.begin)));
    for_common(e.range(), wanted, [&](std::uint64_t at, std::uint64_t full_index, std::uint64_t count) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at - e.begin - from), count,
                  out.begin() + static_cast<std::ptrdiff_t>(full_index - begin));
      done += count;
    });
  }
  STRATA_CHECK_EQ(done, out.size());
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
  CheckpointWeights(const Checkpoint& checkpoint, const models::Model& model, std::uint64_t seed, bool new_head)
      : checkpoint_(checkpoint), random_(random_weights(model, seed)) {
    const std::vector<TensorEntry>& stored = checkpoint.manifest().tensors;
    std::vector<std::string> names;
    names.reserve(stored.size());
    for (const TensorEntry& tensor : stored) names.push_back(tensor.name);
    match_ = match_tensors(model, names, new_head);
    if (!match_.missing.empty())
      other_model("it lacks {}, which this {} model has", match_.missing.front(), model.family);
    if (!match_.unknown.empty() && names[match_.unknown.front()].find(".lora_") != std::string::npos)
      fail(Exit::usage,
           "{} is a checkpoint of an adapter, but the recipe has no such adapter: give the recipe that trained it "
           "(adapter.kind and the other keys of adapter)",
           checkpoint.path().string());
    if (!match_.unknown.empty())
      other_model("it holds {}, which this {} model lacks", names[match_.unknown.front()], model.family);
    const std::vector<TensorEntry> wanted = tensors_of(model);
    std::size_t next = 0;
    for (const auto& places : match_.places)
      for (const auto& place : places) {
        const TensorEntry& tensor = wanted[next++];
        if (place && stored[*place].shape != tensor.shape)
          other_model("its {} is {}, but this model's is {}", tensor.name, stored[*place].shape, tensor.shape);
      }
  }
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!match_.places[unit][parameter]) return random_->read(unit, parameter, begin, out);
    checkpoint_.read("master", name_at(*match_.places[unit][parameter]), begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (const auto& place = match_.places[unit][parameter])
      checkpoint_.prefetch("master", name_at(*place), begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    const auto& place = match_.places[unit][parameter];
    if (!place) return false;
    const auto extents = checkpoint_.extents("master", name_at(*place));
    return !extents.empty() && extents[0].format == format &&
           (extents[0].box.is_full() || format == device::StorageFormat::nf4_plain);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    const std::string& name = name_at(*match_.places[unit][parameter]);
    const Box& box = checkpoint_.extents("master", name)[0].box;
    if (box.is_full()) return checkpoint_.read_nf4_block("master", name, begin, block);
    std::vector<float> values(std::min(device::kNf4Block, box.of_tensor() - begin));
    checkpoint_.read("master", name, begin, values);
    rewrite_nf4_block(values, block);
  }
  std::vector<std::string> initialised() const override { return match_.initialised; }
  std::vector<std::string> left_out() const override {
    std::vector<std::string> layers;
    for (const std::size_t i : match_.left_out) {
      const TensorEntry& tensor = checkpoint_.manifest().tensors[i];
      if (auto layer = layer_of(tensor.name, tensor.shape.size())) layers.push_back(*std::move(layer));
    }
    return layers;
  }

 private:
  template <typename... Args>
  [[noreturn]] void other_model(fmt::format_string<Args...> what, Args&&... args) const {
    fail(Exit::usage, "{} is another model's checkpoint: {}", checkpoint_.path().string(),
         fmt::format(what, std::forward<Args>(args)...));
  }

  const std::string& name_at(std::size_t i) const { return checkpoint_.manifest().tensors[i].name; }

  const Checkpoint& checkpoint_;
  std::unique_ptr<WeightSource> random_;
  TensorMatch match_;
};

}  // namespace

std::unique_ptr<WeightSource> checkpoint_weights(const Checkpoint& checkpoint, const models::Model& model,
                                                 std::uint64_t seed, bool new_head) {
  return std::make_unique<CheckpointWeights>(checkpoint, model, seed, new_head);
}

}  // namespace strata::runtime

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "device/numeric/dtype.h"
#include "device/numeric/dynamic_map.h"
#include "device/numeric/storage_format.h"
#include "launcher/inspect/inspect.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "models/files/config.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/weights/floats.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using device::StorageFormat;
using runtime::Checkpoint;
using runtime::Extent;
using runtime::floats_of;
using runtime::TensorEntry;

bool in_blocks(StorageFormat format) {
  return format == StorageFormat::block8 || is_nf4(format);
}

// Reads a tensor's state from its first element to its last, across extents. State in blocks is read box by box.
class StateReader {
 public:
  StateReader(const Checkpoint& checkpoint, std::string_view kind, const std::string& tensor)
      : checkpoint_(checkpoint), extents_(checkpoint.extents(kind, tensor)), buffer_(runtime::kBlockBytes) {
    for (const Extent& e : extents_) elements_ += e.elements();
  }

  bool there() const { return !extents_.empty(); }
  device::StorageFormat format() const { return extents_[0].format; }
  std::string_view dtype() const { return runtime::stored_dtype(format()); }
  std::span<const Extent> extents() const { return extents_; }
  // The next bytes; empty at the end.
  std::span<const std::byte> next() {
    if (there() && !extents_[0].box.is_full() && !in_blocks(format())) return next_elements();
    while (extent_ < extents_.size() && block_ == extents_[extent_].blocks()) {
      ++extent_;
      block_ = 0;
    }
    if (extent_ == extents_.size()) return {};
    return checkpoint_.read_block(extents_[extent_], block_++, buffer_);
  }

 private:
  // The tensor must be assembled from boxes.
  std::span<const std::byte> next_elements() {
    const std::uint64_t size = stored_bytes(format(), 1), count = std::min(buffer_.size() / size, elements_ - element_);
    const auto bytes = std::span(buffer_).first(count * size);
    checkpoint_.read_elements(extents_[0].kind, extents_[0].tensor, element_, bytes);
    element_ += count;
    return bytes;
  }

  const Checkpoint& checkpoint_;
  std::span<const Extent> extents_;
  std::size_t extent_ = 0, block_ = 0;
  std::uint64_t element_ = 0, elements_ = 0;
  std::vector<std::byte> buffer_;
};

std::string_view name_of_blocks(StorageFormat format) {
  return is_nf4(format) ? "nf4" : "8bit";
}

// Decodes numbers that are stored in blocks (device/numeric/storage_format.h). Their bytes arrive in pieces that may
// split blocks.
class BlockNumbers {
 public:
  // has_sign: for moments in 8 bits.
  BlockNumbers(StorageFormat format, bool has_sign, std::uint64_t elements)
      : format_(format), has_sign_(has_sign), left_(elements) {}

  // Returns the numbers in the blocks that these bytes complete, and keeps the remaining bytes for the next call.
  std::vector<float> next(std::span<const std::byte> bytes) {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
    std::vector<float> out;
    std::size_t at = 0;
    if (is_nf4(format_)) {
      at = waiting_.size() / stored_bytes(format_, 1) * stored_bytes(format_, 1);
      out = floats_of(format_, std::span(waiting_).first(at));
      out.resize(std::min<std::uint64_t>(out.size(), left_));
      left_ -= out.size();
    }
    for (; !is_nf4(format_) && at + kBlock <= waiting_.size(); at += kBlock) {
      float largest = 0;
      std::memcpy(&largest, &waiting_[at], sizeof(largest));
      const auto count = std::min<std::uint64_t>(left_, device::kMomentBlock);
      for (std::size_t i = 0; i < count; ++i) {
        const auto code = std::to_integer<std::uint8_t>(waiting_[at + sizeof(largest) + i]);
        out.push_back(largest * (has_sign_ ? device::decode<true>(code) : device::decode<false>(code)));
      }
      left_ -= count;
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    return out;
  }
  // The first number that the byte encodes.
  static std::uint64_t element_at(StorageFormat format, std::uint64_t byte) {
    if (is_nf4(format)) return byte / stored_bytes(format, 1) * device::kNf4Block;
    const std::uint64_t in_block = byte % kBlock;
    return byte / kBlock * device::kMomentBlock + (in_block < sizeof(float) ? 0 : in_block - sizeof(float));
  }

 private:
  static constexpr std::size_t kBlock = device::stored_bytes(device::StorageFormat::block8, device::kMomentBlock);
  StorageFormat format_;
  bool has_sign_;
  std::uint64_t left_;  // elements still to come
  std::vector<std::byte> waiting_;
};

std::size_t name_width(const std::vector<TensorEntry>& tensors) {
  std::size_t width = 6;
  for (const TensorEntry& tensor : tensors) width = std::max(width, tensor.name.size());
  return width;
}

// The lines for a checkpoint's tensors, below a heading that is printed with the first line.
class StateTable {
 public:
  StateTable(const Checkpoint& checkpoint, Tensors tensors, std::ostream& out)
      : checkpoint_(checkpoint), tensors_(tensors), width_(name_width(checkpoint.manifest().tensors)), out_(out) {}

  // Reads a complete state and, if requested, prints its line.
  void add(const std::string& kind, const TensorEntry& tensor) {
    StateReader reader(checkpoint_, kind, tensor.name);
    if (!reader.there()) return;  // frozen tensors have no moments
    Statistics statistics;
    std::string damage;
    const bool plain = !in_blocks(reader.format());
    try {
      if (plain)
        for (auto bytes = reader.next(); !bytes.empty(); bytes = reader.next())
          statistics.add(floats_of(reader.format(), bytes));
      else
        for (const Extent& e : reader.extents()) add_blocks(kind, e, statistics);
    } catch (const Error& error) {
      damage = error.what();
    }
    if (!damage.empty() && damaged_++ == 0) first_damage_ = damage;
    non_finite_ += statistics.non_finite();
    if (tensors_ == Tensors::wrong && damage.empty() && statistics.non_finite() == 0) return;
    if (!std::exchange(headed_, true))
      fmt::print(out_, "{:<{}}  {:<8} {:<9} {:<16} {:>12} {:>12} {:>11}  {}\n", "tensor", width_, "state", "dtype",
                 "shape", "mean", "std", "non-finite", "checksums");
    fmt::print(out_, "{:<{}}  {:<8} {:<9} {:<16}", printable(tensor.name), width_, kind,
               plain ? reader.dtype() : name_of_blocks(reader.format()),
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    if (damage.empty())
      fmt::print(out_, " {:>12.5g} {:>12.5g} {:>11}  ok\n", statistics.mean(), statistics.deviation(),
                 statistics.non_finite());
    else
      fmt::print(out_, " {:>12} {:>12} {:>11}  DAMAGED\n", "-", "-", "-");
  }
  // Prints the totals. Throws Error{corrupt} if a tensor is damaged.
  void finish() const {
    if (damaged_)
      fail(Exit::corrupt, "{} ({} above {} damaged)", first_damage_, counted(damaged_, "line"),
           for_count(damaged_, "is", "are"));
    fmt::print(out_, "every checksum holds, {}{}\n",
               non_finite_ == 0   ? "every number is finite"
               : non_finite_ == 1 ? "1 number is not finite"
                                  : fmt::format("{} numbers are not finite", non_finite_),
               tensors_ == Tensors::wrong ? " (--tensors shows each tensor)" : "");
  }

 private:
  // Each extent starts at the beginning of a block.
  void add_blocks(const std::string& kind, const Extent& extent, Statistics& statistics) const {
    BlockNumbers numbers(extent.format, kind == name_of(runtime::StateKind::moment1), extent.elements());
    std::vector<std::byte> buffer(runtime::kBlockBytes);
    for (std::size_t block = 0; block < extent.blocks(); ++block)
      statistics.add(numbers.next(checkpoint_.read_block(extent, block, buffer)));
  }

  const Checkpoint& checkpoint_;
  Tensors tensors_;
  std::size_t width_;
  std::ostream& out_;
  bool headed_ = false;
  std::string first_damage_;
  std::size_t damaged_ = 0;
  std::uint64_t non_finite_ = 0;
};

// Whether the extents describe the same boxes, which may be cut differently.
bool same_boxes(std::span<const Extent> a, std::span<const Extent> b) {
  const auto among = [](std::span<const Extent> all, const Extent& one) {
    return std::ranges::any_of(all, [&](const Extent& e) { return e.box == one.box; });
  };
  return std::ranges::all_of(a, [&](const Extent& e) { return among(b, e); });
}

// "differ first at element 5: 0.25 and 0.26"; empty if they are equal.
std::string difference(StateReader a, StateReader b) {
  if (a.there() != b.there()) return fmt::format("only in the {} one", a.there() ? "first" : "second");
  if (!a.there()) return "";
  if (a.format() != b.format()) return fmt::format("{} and {}", a.dtype(), b.dtype());
  if (in_blocks(a.format()) && !same_boxes(a.extents(), b.extents())) return "in blocks of other parts of the tensor";
  std::span<const std::byte> left, right;
  for (std::uint64_t at = 0;;) {
    if (left.empty()) left = a.next();
    if (right.empty()) right = b.next();
    if (left.empty() || right.empty()) return "";
    const std::size_t n = std::min(left.size(), right.size());
    const auto found = std::mismatch(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n), right.begin());
    if (const auto same = static_cast<std::size_t>(found.first - left.begin()); same < n) {
      if (in_blocks(a.format()))
        return fmt::format("first at element {}", BlockNumbers::element_at(a.format(), at + same));
      const std::size_t size = stored_bytes(a.format(), 1), begin = same / size * size;
      return fmt::format("first at element {}: {} and {}", (at + begin) / size,
                         floats_of(a.format(), left.subspan(begin, size))[0],
                         floats_of(a.format(), right.subspan(begin, size))[0]);
    }
    at += n;
    left = left.subspan(n);
    right = right.subspan(n);
  }
}

std::string metric_of(const runtime::Manifest& m) {
  const auto metric = m.recipe.find("evaluation.metric");
  std::string name = metric == m.recipe.end() ? "" : metric->second;
  std::erase(name, '"');
  return printable(name);
}

// "best: eval_loss 2.3145 after step 400 (runs/a/step-00000400), 2 evaluations ago".
std::string best_text(const Checkpoint& checkpoint) {
  const runtime::Manifest& m = checkpoint.manifest();
  const runtime::Best& best = *m.progress.best;
  std::string where = " (not kept)";
  if (best.step == m.progress.step) {
    where = " (this one)";
  } else {
    for (const runtime::FoundCheckpoint& found : runtime::list_checkpoints(checkpoint.path().parent_path()))
      if (found.step == best.step) where = fmt::format(" ({})", printable(found.path.string()));
  }
  return fmt::format("best: {} {} after step {}{}{}", metric_of(m), value_text(best.value, 4), best.step, where,
                     best.since > 0 ? fmt::format(", {} ago", counted(best.since, "evaluation")) : "");
}

}  // namespace

std::optional<Checkpoint> checkpoint_at(const fs::path& path) {
  if (runtime::is_checkpoint(path)) return Checkpoint(path);
  Activity verifying("verifying the checkpoint", Activity::Unit::bytes);
  return runtime::newest_undamaged(path, bind_cores(0, 1).cores, note, verifying.advance());
}

void list_folder(const fs::path& folder, std::ostream& out) {
  if (runtime::is_checkpoint(folder)) return;
  const auto all = runtime::list_checkpoints(folder, runtime::CheckpointTest::shards);
  if (all.empty()) return;
  fmt::print(out, "{} in {}, the newest first:\n", counted(all.size(), "checkpoint"), printable(folder.string()));
  const auto newest = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.damage.empty(); });
  std::optional<runtime::Manifest> manifest;
  if (newest != all.end()) manifest = runtime::read_manifest(newest->path);
  for (const runtime::FoundCheckpoint& found : all) {
    std::string what = found.damage.empty() ? "" : "  DAMAGED";
    if (found.damage.empty() && manifest && manifest->progress.best && manifest->progress.best->step == found.step)
      what = fmt::format("  the best: {} {}", metric_of(*manifest), value_text(manifest->progress.best->value, 4));
    fmt::print(out, "  {}{}\n", printable(found.path.filename().string()), what);
  }
}

void inspect_checkpoint(const Checkpoint& checkpoint, Tensors tensors, std::ostream& out) {
  const runtime::Manifest& m = checkpoint.manifest();
  std::uint64_t parameters = 0;
  for (const TensorEntry& tensor : m.tensors) parameters += tensor.elements();
  fmt::print(out,
             "checkpoint {}: step {} ({}), {}, next micro-batch {} ({} per step), loss scale {}\n"
             "{}, {} in {}; {} of {}, {} ({:.2f} bytes per parameter)\n",
             printable(checkpoint.path().string()), m.progress.step, counted(m.progress.updates, "update"),
             counted(m.progress.tokens, "token"), m.progress.next_micro_batch, m.micro_batches_per_step,
             m.progress.loss_scale.scale, printable(m.family), counted(parameters, "parameter"),
             counted(m.tensors.size(), "tensor"), counted(m.files.size(), "file"), counted(m.ranks, "rank"),
             bytes_text(checkpoint.bytes()),
             static_cast<double>(checkpoint.bytes()) / static_cast<double>(std::max<std::uint64_t>(parameters, 1)));
  out << classes_line(models::Config::parse(m.config, (checkpoint.path() / runtime::kManifestName).string()));
  if (m.progress.best) out << best_text(checkpoint) << '\n';
  StateTable table(checkpoint, tensors, out);
  Activity activity("inspecting tensors");
  std::uint64_t looked_at = 0;
  for (const TensorEntry& tensor : m.tensors) {
    activity.show(looked_at++, m.tensors.size());
    if (tensors == Tensors::all) activity.clear();
    for (const std::string& kind : checkpoint.kinds()) table.add(kind, tensor);
  }
  activity.clear();
  table.finish();
}

void compare_checkpoints(const Checkpoint& first, const Checkpoint& second, std::ostream& out) {
  const auto &m = first.manifest(), &n = second.manifest();
  if (m.progress.step != n.progress.step) fmt::print(out, "step {} and step {}\n", m.progress.step, n.progress.step);
  const std::size_t width = name_width(m.tensors);
  std::set<std::string> kinds;
  for (const Checkpoint* checkpoint : {&first, &second})
    for (const std::string& kind : checkpoint->kinds()) kinds.insert(kind);
  std::set<std::string> seen;
  std::size_t compared = 0, differ = 0;
  const auto compare = [&](const TensorEntry& tensor) {
    if (!seen.insert(tensor.name).second) return;
    for (const std::string& kind : kinds) {
      const std::string what =
          difference(StateReader(first, kind, tensor.name), StateReader(second, kind, tensor.name));
      ++compared;
      if (what.empty()) continue;
      ++differ;
      fmt::print(out, "{:<{}}  {:<8} {}\n", printable(tensor.name), width, kind, what);
    }
  };
  for (const TensorEntry& tensor : m.tensors) compare(tensor);
  for (const TensorEntry& tensor : n.tensors) compare(tensor);
  fmt::print(out, "{} of {} differ\n", differ, counted(compared, "tensor's state", "tensors' states"));
}

}  // namespace strata::launcher

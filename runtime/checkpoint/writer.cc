#include "runtime/checkpoint/writer.h"

#include <fmt/format.h>
#define XXH_STATIC_LINKING_ONLY  // makes the state of a hash a complete type
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/host_work.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

std::span<std::byte> staging_of(const StepPlan& plan, const Executor& executor) {
  const auto saves = [](const Task& task) { return task.kind == TaskKind::save; };
  const auto task = std::find_if(plan.tasks.begin(), plan.tasks.end(), saves);
  STRATA_CHECK(task != plan.tasks.end());
  const device::View staging = executor.storage().view(*task, Role::staging, device::DType::fp32);
  return {staging.data, staging.bytes()};
}

// Computes the checksums of blocks from pieces of any size.
class BlockHash {
 public:
  BlockHash() { XXH3_64bits_reset(&state_); }
  std::uint64_t block_left(std::uint64_t at) const { return kBlockBytes - at % kBlockBytes; }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  std::uint64_t end_block() {
    const std::uint64_t sum = XXH3_64bits_digest(&state_);
    XXH3_64bits_reset(&state_);
    return sum;
  }

 private:
  XXH3_state_t state_;
};

// The units whose state this rank saves, by number.
std::vector<bool> saved_units(const StepPlan& plan) {
  std::vector<bool> saved(plan.layout.units.size());
  for (const Task& task : plan.tasks)
    if (task.kind == TaskKind::save) saved[static_cast<std::size_t>(task.unit)] = true;
  return saved;
}

}  // namespace

CheckpointWriter::CheckpointWriter(const Job& job, comm::World& world, Executor& executor, CheckpointFolder& folder,
                                   const std::string& base, const std::string& data_hash,
                                   const std::string& validation_hash)
    : world_(world),
      executor_(executor),
      folder_(folder),
      staging_(staging_of(job.plan, executor)),
      records_(static_cast<std::size_t>(world.size())) {
  manifest_.micro_batches_per_step = job.plan.micro_batches();
  manifest_.ranks = job.plan.ranks();
  manifest_.family = job.model->family;
  manifest_.config = job.config().to_json();
  manifest_.tensors = tensors_of(*job.model);
  const Recipe recipe = with_absolute_paths(job.complete_recipe());
  for (auto& value : values_of(recipe)) manifest_.recipe.insert(std::move(value));
  manifest_.validation_hash = validation_hash;
  manifest_.base_hash = base;
  manifest_.data_hash = data_hash;
  if (recipe.model.path) manifest_.base_path = recipe.model.path->string();
  manifest_.files.resize(records_.size());
  plan_file(job);
  communicator_ = world.open(executor.checkpoint_lane());
}

CheckpointWriter::~CheckpointWriter() {
  executor_.forget(*this);  // the lane's work refers to this object
}

// Exactly one of the ranks that save a unit writes each element of each state: the rank whose shard contains it, even
// if others hold a copy. If ranks share each layer, the first of them writes the elements that all of them hold.
void CheckpointWriter::plan_file(const Job& job) {
  const Coordinates rank = job.plan.mesh().at(world_.rank());
  const std::vector<bool> saved = saved_units(job.plan);
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit) {
    first_extent_.push_back(extents_.size());
    const UnitLayout& layout = job.plan.layout.units[unit];
    for (const PoolKind pool : kPools)
      for (const TensorRange& range : layout.pool(pool).ranges) manifest_.boxes |= range.box.has_value();
    if (!saved[unit]) continue;
    const auto parameters = job.model->units[unit]->parameters();
    const std::size_t part_begin = job.plan.parts_of(unit).piece(rank).begin;
    for (const StateKind kind :
         {StateKind::master, StateKind::moment1, StateKind::moment2, StateKind::frozen, StateKind::quantised}) {
      if (!executor_.storage().has_state(kind)) continue;
      const bool frozen = is_frozen(kind);
      if (frozen && !manifest_.base_hash.empty()) continue;
      const Pool& pool = layout.pool(pool_of(kind));
      for (const TensorRange& range : pool.ranges) {
        if (!range.box && rank.tensor != 0) continue;
        const auto [begin, end] = pool.shards.piece_of({range.begin, range.end}, rank);
        if (begin >= end) continue;
        const models::Parameter& parameter = parameters[range.parameter];
        Extent& e = extents_.emplace_back();
        e.kind = name_of(kind);
        e.tensor = parameter.name;
        e.format = frozen                      ? job.plan.stored_in(pool_of(kind))
                   : kind == StateKind::master ? device::StorageFormat::fp32
                                               : range.moments;
        e.box = range.box_of(parameter);
        STRATA_CHECK_EQ(e.box.elements(), range.end - range.begin);
        e.begin = begin - range.begin;
        e.end = end - range.begin;
        e.bytes = stored_bytes(e.format, e.elements());
        e.checksums.resize(e.blocks());
        const std::size_t held = frozen ? executor_.storage().held(unit, kind).begin : part_begin;
        const std::size_t at =
            frozen ? stored_bytes(e.format, begin - held) : layout.state_offset(kind, part_begin, begin);
        parts_.push_back({unit, at, kind});
      }
    }
  }
  first_extent_.push_back(extents_.size());
  header_bytes_ = file_bytes_ = shard_header(extents_).size();
  for (Extent& e : extents_) {
    e.offset = file_bytes_;
    file_bytes_ += e.bytes;
  }
}

std::string CheckpointWriter::file_name(int rank) const {
  return fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world_.size());
}

void CheckpointWriter::start(const Progress& progress) {
  executor_.synchronize();  // the rest of the step is not part of the wait
  const SteadyClock::time_point asked = SteadyClock::now();
  finish();
  executor_.drain();
  waited_ms_ += 1e3 * seconds_since(asked);
  manifest_.progress = progress;
  manifest_.algorithms = executor_.algorithms() ? executor_.algorithms()->text() : "";
  ++begun_;
  opened_ = false;
  temporary_ = folder_.temporary(progress.step);
  executor_.save_during_next_step(*this);
}

void CheckpointWriter::finish() {
  executor_.finish_saving();
}

void CheckpointWriter::save(device::Lane& lane, std::size_t unit) {
  if (!std::exchange(opened_, true)) {
    lane.stamp(&last_.begin);
    comm::host_work(lane, [this](device::cpu::Team&) { open_file(); });
  }
  comm::host_work(lane, [this, unit](device::cpu::Team&) { write_unit(unit); });
}

void CheckpointWriter::publish(device::Lane& lane) {
  comm::host_work(lane, [this](device::cpu::Team&) { seal_file(); });
  communicator_->exchange(reinterpret_cast<const std::byte*>(&record_), sizeof record_,
                          reinterpret_cast<std::byte*>(records_.data()));
  comm::host_work(lane, [this](device::cpu::Team&) { publish_folder(); });
  lane.stamp(&last_.end);
}

CheckpointFigures CheckpointWriter::figures() const {
  return {begun_, file_bytes_, executor_.held_ms() + waited_ms_, static_cast<double>(last_.end - last_.begin) * 1e-6};
}

void CheckpointWriter::open_file() {
  FileSystem& system = folder_.system();
  if (world_.rank() == 0) folder_.keep_locked();
  make_durable_folder(system, temporary_);  // ranks share it: one creates it, the others find it
  file_ = system.create(temporary_ / file_name(world_.rank()));
  filled_ = 0;
  flushed_ = header_bytes_;
}

void CheckpointWriter::write_unit(std::size_t unit) {
  for (std::size_t i = first_extent_[unit]; i < first_extent_[unit + 1]; ++i) write_extent(extents_[i], parts_[i]);
}

void CheckpointWriter::write_extent(Extent& extent, const Part& part) {
  BlockHash hash;
  for (std::uint64_t at = 0; at < extent.bytes;) {
    const std::uint64_t n = std::min({extent.bytes - at, hash.block_left(at), staging_.size() - filled_});
    const std::span<std::byte> piece = staging_.subspan(filled_, n);
    executor_.storage().read_state(part.unit, part.kind, part.begin + at, piece);
    hash.add(piece);
    filled_ += n;
    at += n;
    if (at % kBlockBytes == 0 || at == extent.bytes) extent.checksums[(at - 1) / kBlockBytes] = hash.end_block();
    if (filled_ == staging_.size()) flush();
  }
}

void CheckpointWriter::flush() {
  if (filled_) file_->write(flushed_, staging_.first(filled_));
  flushed_ += filled_;
  filled_ = 0;
}

void CheckpointWriter::seal_file() {
  flush();
  STRATA_CHECK_EQ(flushed_, file_bytes_);
  const std::string header = shard_header(extents_);
  STRATA_CHECK_EQ(header.size(), header_bytes_);
  file_->write(0, std::as_bytes(std::span(header)));
  file_->sync();
  file_.reset();
  folder_.system().sync_folder(temporary_);
  record_ = {file_bytes_, header_bytes_, XXH3_64bits(header.data(), header.size())};
}

// Runs when every rank's file is on the disk.
void CheckpointWriter::publish_folder() {
  if (world_.rank() != 0) return;
  for (std::size_t rank = 0; rank < records_.size(); ++rank) {
    const Record& r = records_[rank];
    manifest_.files[rank] = {file_name(static_cast<int>(rank)), r.bytes, r.header_bytes, r.header_hash};
  }
  folder_.publish(temporary_, manifest_);
}

}  // namespace strata::runtime

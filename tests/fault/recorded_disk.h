#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/checkpoint/file_system.h"

namespace strata::tests {

// One operation of a run on a disk. Paths are relative to the recorded folder.
struct DiskOperation {
  enum class Kind { create, write, sync, make_folder, sync_folder, rename, remove };
  Kind kind;
  std::string path, to;  // to: of a rename
  std::uint64_t offset = 0;
  std::string bytes;  // of a write

  bool is_sync() const { return kind == Kind::sync || kind == Kind::sync_folder; }
};

// A file system that performs and records all operations. `base` and the folders above it exist beforehand.
class RecordingDisk final : public runtime::FileSystem {
 public:
  explicit RecordingDisk(std::filesystem::path base) : base_(std::move(base)) {}

  const std::vector<DiskOperation>& operations() const { return operations_; }

  std::unique_ptr<runtime::WritableFile> create(const std::filesystem::path& path) override {
    auto file = disk_->create(path);
    note({DiskOperation::Kind::create, name(path), {}});
    return std::make_unique<File>(*this, name(path), std::move(file));
  }
  void make_folder(const std::filesystem::path& path) override {
    const std::lock_guard lock(mutex_);
    const bool there = std::filesystem::exists(path);
    disk_->make_folder(path);
    if (!there) operations_.push_back({DiskOperation::Kind::make_folder, name(path), {}});
  }
  void sync_folder(const std::filesystem::path& path) override {
    disk_->sync_folder(path);
    note({DiskOperation::Kind::sync_folder, name(path), {}});
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    disk_->rename(from, to);
    note({DiskOperation::Kind::rename, name(from), name(to)});
  }
  void remove_file(const std::filesystem::path& path) override {
    disk_->remove_file(path);
    note({DiskOperation::Kind::remove, name(path), {}});
  }
  void remove_folder(const std::filesystem::path& path) override {
    disk_->remove_folder(path);
    note({DiskOperation::Kind::remove, name(path), {}});
  }

 private:
  class File final : public runtime::WritableFile {
   public:
    File(RecordingDisk& disk, std::string name, std::unique_ptr<runtime::WritableFile> file)
        : disk_(disk), name_(std::move(name)), file_(std::move(file)) {}
    void write(std::uint64_t offset, std::span<const std::byte> bytes) override {
      file_->write(offset, bytes);
      disk_.note({DiskOperation::Kind::write,
                  name_,
                  {},
                  offset,
                  std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
    }
    void sync() override {
      file_->sync();
      disk_.note({DiskOperation::Kind::sync, name_, {}});
    }

   private:
    RecordingDisk& disk_;
    std::string name_;
    std::unique_ptr<runtime::WritableFile> file_;
  };

  std::string name(const std::filesystem::path& path) const { return path.lexically_relative(base_).string(); }
  void note(DiskOperation operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
  }

  std::filesystem::path base_;
  std::unique_ptr<runtime::FileSystem> disk_ = runtime::posix_file_system();
  std::mutex mutex_;
  std::vector<DiskOperation> operations_;
};

// The possible state of a disk after a power failure: the entries of folders, and the contents of files. Only what was
// synced is certain. Any other operation may have happened or not, whatever became of earlier ones. A write may have
// happened in part.
class CrashImage {
 public:
  // The part of operation `i`, which no sync covers, that reached the disk: 0 none, 1 all; for a write, any part.
  using Luck = std::function<double(std::size_t i)>;

  // The state after the first `count` operations. covered: covered_by(operations).
  CrashImage(const std::vector<DiskOperation>& operations, const std::vector<std::size_t>& covered, std::size_t count,
             const Luck& luck) {
    folders_["."];
    std::map<std::string, int> open;  // by the name it was created under, which a rename above it does not change
    for (std::size_t i = 0; i < count; ++i) {
      const DiskOperation& o = operations[i];
      if (o.is_sync()) continue;
      apply(o, covered[i] < count ? 1 : luck(i), open);
    }
  }

  // For each operation, the later one that makes it durable; the number of operations if there is none.
  static std::vector<std::size_t> covered_by(const std::vector<DiskOperation>& operations) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const DiskOperation& o = operations[i];
      const bool content = o.kind == DiskOperation::Kind::write;
      const auto kind = content ? DiskOperation::Kind::sync : DiskOperation::Kind::sync_folder;
      const std::string where = content ? o.path : parent(o.path);
      std::size_t j = i + 1;
      while (j < operations.size() && (operations[j].kind != kind || operations[j].path != where)) ++j;
      out.push_back(j);
    }
    return out;
  }

  // Writes this state into an empty folder.
  void put_into(const std::filesystem::path& folder) const { put(".", folder); }
  // Equal for equal images.
  std::string key() const {
    std::string all;
    for (const auto& [path, entries] : folders_) {
      all += path + "{";
      for (const auto& [name, target] : entries) all += name + "=" + target + ";";
      all += "}";
    }
    for (const std::string& file : files_) all += std::to_string(std::hash<std::string>{}(file)) + ",";
    return all;
  }

 private:
  static std::string parent(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
  }
  static std::string leaf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  // Folders are identified by the names under which they were created, so that a rename moves no contents.
  void apply(const DiskOperation& o, double part, std::map<std::string, int>& open) {
    using Kind = DiskOperation::Kind;
    auto& entries = folders_[resolve(parent(o.path))];
    switch (o.kind) {
      case Kind::create:
        open[o.path] = static_cast<int>(files_.size());
        files_.emplace_back();
        if (part > 0) entries[leaf(o.path)] = "#" + std::to_string(open[o.path]);
        return;
      case Kind::write: {
        std::string& file = files_[static_cast<std::size_t>(open[o.path])];
        const auto n = static_cast<std::size_t>(part * static_cast<double>(o.bytes.size()));
        if (n == 0) return;
        if (file.size() < o.offset + n) file.resize(o.offset + n);
        file.replace(o.offset, n, o.bytes, 0, n);
        return;
      }
      case Kind::make_folder:
        folders_[o.path];
        if (part > 0) entries[leaf(o.path)] = o.path;
        return;
      case Kind::rename:
        if (const auto from = entries.find(leaf(o.path)); part > 0 && from != entries.end()) {
          const std::string target = from->second;
          entries.erase(from);
          entries[leaf(o.to)] = target;
        }
        renamed_[o.to] = resolve(o.path);
        return;
      case Kind::remove:
        if (part > 0) entries.erase(leaf(o.path));
        return;
      case Kind::sync:
      case Kind::sync_folder:
        return;
    }
  }

  std::string resolve(const std::string& path) const {
    const auto found = renamed_.find(path);
    return found == renamed_.end() ? path : found->second;
  }

  void put(const std::string& folder, const std::filesystem::path& to) const {
    std::filesystem::create_directories(to);
    for (const auto& [name, target] : folders_.at(folder)) {
      if (target[0] != '#') {
        put(target, to / name);
        continue;
      }
      std::ofstream(to / name, std::ios::binary) << files_[static_cast<std::size_t>(std::stoi(target.substr(1)))];
    }
  }

  std::map<std::string, std::map<std::string, std::string>> folders_;  // name -> folder's first name, or #file
  std::map<std::string, std::string> renamed_;                         // newest name of a folder -> its first
  std::vector<std::string> files_;
};

}  // namespace strata::tests

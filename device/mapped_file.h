#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace strata::device {

// A file mapped read-only; owns the mapping. An empty file maps to an empty span. Throws Error{failed} naming the path
// and the system's reason; Error{usage} where the path does not exist or is no regular file.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Tells the system that reads will go once from front to back, or here and there.
  enum class Access { sequential, random };
  void advise(Access access) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace strata::device

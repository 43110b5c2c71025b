#include "comm/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace strata::comm {

SharedMapping::SharedMapping(std::string name, std::size_t bytes) : name_(std::move(name)), bytes_(bytes) {
  STRATA_CHECK_LT(name_.size(), sizeof Address{}.name);
  file_.reset(memfd_create(name_.c_str(), MFD_CLOEXEC));
  if (file_.get() < 0 || ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
    fail(Exit::does_not_fit,
         "the system refused {} bytes of shared memory ({}): lower memory.device or use fewer ranks", bytes,
         std::strerror(errno));
  map();
}

SharedMapping::~SharedMapping() {
  if (data_) munmap(data_, bytes_);
  close_file();
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : name_(std::move(other.name_)),
      file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void SharedMapping::map() {
  if (bytes_ == 0) return;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
  if (p == MAP_FAILED)
    fail(Exit::does_not_fit,
         "the system refused a mapping of {} bytes of shared memory ({}): lower memory.device or use fewer ranks",
         bytes_, std::strerror(errno));
  // Takes effect only if /sys/kernel/mm/transparent_hugepage/shmem_enabled is `advise`.
  (void)madvise(p, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

SharedMapping::Address SharedMapping::address() const {
  Address address{getpid(), file_.get(), bytes_, {}};
  name_.copy(address.name, sizeof address.name - 1);
  return address;
}

void SharedMapping::close_file() {
  file_.reset();
}

SharedMapping SharedMapping::of(const Address& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  // In another container, a PID means another process or none, so the file must have the announced name.
  char target[128];
  const ssize_t size = readlink(path.c_str(), target, sizeof target);
  if (size < 0) fail(Exit::failed, "{} cannot be read ({})", path, std::strerror(errno));
  if (std::string_view(target, static_cast<std::size_t>(size)) != fmt::format("/memfd:{} (deleted)", address.name))
    fail(Exit::failed, "{} is another process's memory: the ranks do not share a PID namespace", path);
  SharedMapping mapping;
  mapping.name_ = address.name;
  mapping.bytes_ = address.bytes;
  mapping.file_.reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (mapping.file_.get() < 0) fail(Exit::failed, "{} cannot be opened ({})", path, std::strerror(errno));
  mapping.map();
  mapping.close_file();
  return mapping;
}

void release_pages(const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  // Releases whole pages. Other data in the first and last page is read back when it is needed.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(data) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data) + bytes;
  // A failure is harmless: the pages just stay in the resident set.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace strata::comm

#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <thread>

#include "tests/offload/seccomp.h"

namespace strata::tests {

// Runs f() in a thread in which, as in threads and processes that it starts, these system calls answer with `error`.
// Rethrows what f() throws; throws std::runtime_error if the system has no seccomp.
template <typename F>
void with_failing(std::initializer_list<long> calls, int error, F&& f) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      if (!offload::forbid(calls, error)) throw std::runtime_error("this system lets no one install a seccomp filter");
      f();
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

// During its lifetime, this process can open only `more` further files.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    set(static_cast<rlim_t>(next + more));
  }
  ~FewFiles() { set(before_.rlim_cur); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  void set(rlim_t files) {
    rlimit limit = before_;
    limit.rlim_cur = files;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit");
  }
  rlimit before_{};
};

// During its lifetime, this process has only an ordinary user's rights: root becomes "nobody".
class WithoutRights {
 public:
  WithoutRights() : before_(::geteuid()) {
    if (before_ == 0 && ::seteuid(65534) != 0) throw std::runtime_error("seteuid");
  }
  ~WithoutRights() {
    if (::seteuid(before_) != 0) std::terminate();
  }
  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;

 private:
  uid_t before_;
};

}  // namespace strata::tests

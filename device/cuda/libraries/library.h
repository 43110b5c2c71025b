#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace strata::device::cuda {

// A library that is found when the program runs, so that one program serves machines with and without it.
struct LibraryName {
  const char* title;                 // "cuBLASLt"
  std::vector<const char*> sonames;  // the newest first
  const char* package;               // what to install
};
const LibraryName& cublaslt_name();
const LibraryName& cudnn_name();
const LibraryName& nccl_name();

// "13.1.0" from 130100, as the three of them number their versions.
std::string library_version_text(std::size_t version);

// Folders that are searched after the process itself and STRATA_CUDA_LIBRARIES, which goes before the loader's path:
// those of that variable, then of CUDA (CUDA_HOME, CUDA_PATH, /usr/local/cuda), then of PyTorch's wheels if pip, a
// virtual environment or conda puts them. Only those that exist.
std::vector<std::string> named_folders();
std::vector<std::string> usual_folders();

// A loaded library, which stays loaded: what it runs on the GPU may outlive any owner here.
class Library {
 public:
  // Throws Error{usage}: one sentence with what to install, where it was sought and what the loader said of any found.
  static Library open(const LibraryName& name);

  // The file that was taken.
  const std::string& path() const { return path_; }
  // Throws Error{usage} if the library has no such function.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(find(name));
  }

 private:
  Library(void* handle, const LibraryName& name);
  void* find(const char* name) const;

  void* handle_;
  const char* title_;
  std::string path_;
};

}  // namespace strata::device::cuda

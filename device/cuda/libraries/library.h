#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace strata::device::cuda {

// A library that is looked up at run time, so that one program serves machines with and without it.
struct LibraryName {
  const char* title;                 // "cuBLASLt"
  std::vector<const char*> sonames;  // newest first
  const char* package;               // what to install
};
const LibraryName& cublaslt_name();
const LibraryName& cudnn_name();
const LibraryName& nccl_name();

// "13.1.0" for 130100: all three libraries number their versions like this.
std::string library_version_text(std::size_t version);

// The existing folders that are searched after the process itself and STRATA_CUDA_LIBRARIES (which is searched before
// the loader's path): the variable's, then CUDA's (CUDA_HOME, CUDA_PATH, /usr/local/cuda), then the folders of
// PyTorch's wheels as pip, a virtual environment or conda installs them.
std::vector<std::string> named_folders();
std::vector<std::string> usual_folders();

// A loaded library. It is never unloaded, because its work on the GPU may outlive any owner here.
class Library {
 public:
  // Throws an Error{usage} with one sentence: what to install, where Strata looked, and the loader's message about any
  // file found.
  static Library open(const LibraryName& name);

  // The file that was loaded.
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

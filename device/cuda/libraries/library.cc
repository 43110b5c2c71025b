#include "device/cuda/libraries/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"

namespace strata::device::cuda {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return value ? value : "";
}

// Appends the folders that match a shell pattern, in the order of their names.
void append(std::vector<std::string>& folders, const std::string& pattern) {
  glob_t found{};
  if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat status {};
      if (stat(found.gl_pathv[i], &status) == 0 && S_ISDIR(status.st_mode)) folders.emplace_back(found.gl_pathv[i]);
    }
  globfree(&found);
}

constexpr int kMode = RTLD_NOW | RTLD_LOCAL;

// Tries every soname in a folder. If a file exists but cannot be loaded, the loader's message goes to `refused`.
void* load_from(const std::string& folder, const LibraryName& name, std::vector<std::string>& refused) {
  for (const char* soname : name.sonames) {
    const std::string file = folder + "/" + soname;
    if (access(file.c_str(), F_OK) != 0) continue;
    if (void* const handle = dlopen(file.c_str(), kMode)) return handle;
    refused.emplace_back(dlerror());
  }
  return nullptr;
}

void* load(const LibraryName& name, std::vector<std::string>& refused) {
  for (const char* soname : name.sonames)
    if (void* const handle = dlopen(soname, kMode | RTLD_NOLOAD)) return handle;
  for (const std::string& folder : named_folders())
    if (void* const handle = load_from(folder, name, refused)) return handle;
  for (const char* soname : name.sonames)
    if (void* const handle = dlopen(soname, kMode)) return handle;
  for (const std::string& folder : usual_folders())
    if (void* const handle = load_from(folder, name, refused)) return handle;
  return nullptr;
}

}  // namespace

const LibraryName& cublaslt_name() {
  static const LibraryName name{"cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"}, "CUDA's libcublas"};
  return name;
}
const LibraryName& cudnn_name() {
  static const LibraryName name{"cuDNN", {"libcudnn.so.9"}, "NVIDIA's cudnn9-cuda-13"};
  return name;
}
const LibraryName& nccl_name() {
  static const LibraryName name{"NCCL", {"libnccl.so.2"}, "NVIDIA's libnccl2"};
  return name;
}

std::string library_version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::vector<std::string> named_folders() {
  std::vector<std::string> folders;
  const std::string all = environment("STRATA_CUDA_LIBRARIES");
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(':', begin), all.size());
    if (end > begin) folders.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

std::vector<std::string> usual_folders() {
  std::vector<std::string> folders;
  for (const std::string& toolkit :
       {environment("CUDA_HOME"), environment("CUDA_PATH"), std::string("/usr/local/cuda")})
    for (const char* lib : {"lib64", "targets/x86_64-linux/lib"})
      if (!toolkit.empty()) append(folders, fmt::format("{}/{}", toolkit, lib));
  const std::string user = environment("HOME").empty() ? "" : environment("HOME") + "/.local";
  for (const std::string& prefix :
       {environment("VIRTUAL_ENV"), environment("CONDA_PREFIX"), user, std::string("/usr/local"), std::string("/usr"),
        std::string("/opt/*"), std::string("/opt/*/.venv")}) {
    if (prefix.empty()) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      append(folders, fmt::format("{}/lib/python3*/{}/nvidia/*/lib", prefix, packages));
  }
  if (const std::string conda = environment("CONDA_PREFIX"); !conda.empty()) append(folders, conda + "/lib");
  return folders;
}

Library Library::open(const LibraryName& name) {
  std::vector<std::string> refused;
  if (void* const handle = load(name, refused)) return {handle, name};
  const auto folders = usual_folders();
  fail(Exit::usage,
       "{} ({}) was not found: install {} or PyTorch, or name its folder in STRATA_CUDA_LIBRARIES; searched on the "
       "loader's path{}{}{}",
       name.title, fmt::join(name.sonames, " or "), name.package,
       folders.empty() ? "" : fmt::format(" and in {}", fmt::join(folders, ", ")),
       refused.empty() ? "" : "; the loader refused: ", fmt::join(refused, "; "));
}

Library::Library(void* handle, const LibraryName& name) : handle_(handle), title_(name.title), path_(name.sonames[0]) {
  // Asks the loader for the path, because the library may have been loaded by its soname alone.
  char folder[4096] = {};
  struct stat status {};
  if (dlinfo(handle, RTLD_DI_ORIGIN, folder) != 0) return;
  for (const char* soname : name.sonames)
    if (const std::string file = fmt::format("{}/{}", folder, soname); stat(file.c_str(), &status) == 0) {
      path_ = file;
      return;
    }
}

void* Library::find(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (!found) fail(Exit::usage, "{} at {} has no {}: install a newer one", title_, path_, name);
  return found;
}

}  // namespace strata::device::cuda

#include "offload/io_options.h"

namespace strata::offload {

std::string_view name_of(Engine engine) {
  switch (engine) {
    case Engine::io_uring:
      return "io_uring";
    case Engine::libaio:
      return "libaio";
    case Engine::threads:
      return "threads";
  }
  return "";
}

std::string to_string(const IoMode& mode) {
  std::string text(name_of(mode.engine));
  text += mode.direct ? ", O_DIRECT" : ", buffered";
  // Only io_uring has registered buffers.
  if (mode.engine == Engine::io_uring) text += mode.registered ? ", registered buffers" : ", plain buffers";
  return text;
}

}  // namespace strata::offload

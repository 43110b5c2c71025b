#pragma once
#include <cstddef>
#include <filesystem>

namespace strata::comm {

// Where Open MPI keeps what the processes of a node share: segments of 4 MiB per rank, and a folder per mpirun.
struct SharedPlaces {
  std::filesystem::path segments = "/dev/shm";
  std::filesystem::path sessions;  // as Open MPI chooses it if empty: by TMPDIR, TEMP, TMP, else /tmp
};

// Removes what killed starts of this user left on this node, under the names of Open MPI 4 and 5: segments and session
// folders that no process has open, in whichever container. What cannot be removed stays. Returns how many it removed.
std::size_t clear_leftovers(SharedPlaces places = {});

}  // namespace strata::comm

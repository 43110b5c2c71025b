#pragma once
#include <cstddef>
#include <filesystem>

namespace strata::comm {

// The places in which Open MPI keeps what the processes of a node share: segments of 4 MiB per rank, and a folder per
// mpirun.
struct SharedPlaces {
  std::filesystem::path segments = "/dev/shm";
  std::filesystem::path sessions;  // if empty, as Open MPI chooses it: TMPDIR, TEMP, TMP, otherwise /tmp
};

// Removes what this user's killed starts left on this node, under the names of Open MPI 4 and 5: segments and session
// folders that no process in any container has open. Whatever cannot be removed stays. Returns how many were removed.
std::size_t clear_leftovers(SharedPlaces places = {});

}  // namespace strata::comm

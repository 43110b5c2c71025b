#pragma once
#include <cstddef>

#include "device/device.h"

namespace strata::device::emulation {

// Device memory, which the host cannot address: a segmentation fault unless an Access is alive, so that a program that
// reads or writes it from the host does not get far. All of it opens and closes at once, for all threads.
std::byte* allocate(Device device, std::size_t bytes);
void release(Device device, std::byte* data, std::size_t bytes) noexcept;

void open_memory();
void close_memory();

struct Access {
  Access() { open_memory(); }
  ~Access() { close_memory(); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

}  // namespace strata::device::emulation

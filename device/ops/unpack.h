#pragma once
#include <cstddef>

#include "device/lane.h"
#include "device/numeric/storage_format.h"
#include "device/view.h"

namespace strata::device {

// out[i] = value of its code * scale of its 64 elements, in fp32, rounded once to out's dtype: whole blocks of nf4 or
// nf4_plain (device/numeric/nf4.h), of which `packed` holds stored_bytes(format, out.size).
void unpack(Lane&, StorageFormat format, const std::byte* packed, View out);

}  // namespace strata::device

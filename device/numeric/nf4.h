#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/numeric/storage_format.h"

// NF4 of "QLoRA" (Dettmers et al. 2023), with the bits of bitsandbytes: 64 consecutive elements of a matrix share a
// scale, their largest magnitude, and each is one of 16 fractions of it. With double quantisation the scales have 8
// bits too: the offset, which is the mean of all the matrix's scales, is subtracted, and every 256 of them share one
// scale.
//
// A block of StorageFormat::nf4 begins at a multiple of 16,384 elements of its matrix and holds, in this order: the
// scale of its scales and the offset (floats), 256 scales (bitsandbytes' codes), and 8,192 bytes of codes, each with
// the even element's code in the high half. A block of nf4_plain holds 256 scales (floats) and the codes.
namespace strata::device {

inline constexpr std::size_t kScaleBlock = 64;                             // elements that share a scale
inline constexpr std::size_t kNf4Scales = kNf4Block / kScaleBlock;         // per block
inline constexpr std::size_t kNf4CodeBytes = kNf4Block / 2;                // per block
inline constexpr std::size_t kNf4ScaleBytes = 2 * sizeof(float);           // where a block's scales lie in nf4
inline constexpr std::size_t kNf4Codes = kNf4ScaleBytes + kNf4Scales;      // where its codes lie in nf4
inline constexpr std::size_t kNf4PlainCodes = kNf4Scales * sizeof(float);  // where its codes lie in nf4_plain
static_assert(kNf4Codes + kNf4CodeBytes == kNf4Bytes && kNf4PlainCodes + kNf4CodeBytes == kNf4PlainBytes);

inline constexpr float kNf4Values[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};

// Threshold i lies between codes i and i + 1. A number equal to a threshold gets the lower code.
inline constexpr float kNf4Thresholds[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,   -0.4599952697753906f, -0.33967943489551544f, -0.23460740596055984f,
    -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f, 0.1202552504837513f,   0.2035212516784668f,
    0.2920137718319893f,   0.3893125355243683f,    0.5016634166240692f,  0.6427869200706482f,   0.8614784181118011f};

// The code of a number in [-1, 1].
constexpr unsigned nf4_code(float x) {
  unsigned code = 0;
  for (const float threshold : kNf4Thresholds) code += x > threshold;
  return code;
}

// The values of bitsandbytes' signed dynamic map above zero, as it rounds them (the values in dynamic_map.h are the
// nearest to the same numbers). Its codes number all values from the smallest: 127 is zero, and -1 has none.
inline constexpr float kScaleParts[128] = {5.50000038e-07f, 3.25000019e-06f, 7.7499999e-06f,  2.12499981e-05f,
                                           4.37499984e-05f, 6.62500024e-05f, 8.87499991e-05f, 0.000156250011f,
                                           0.000268750038f, 0.000381250022f, 0.000493750034f, 0.000606250076f,
                                           0.00071875006f,  0.000831249985f, 0.000943750085f, 0.00128124992f,
                                           0.00184375001f,  0.00240624999f,  0.00296874996f,  0.00353124971f,
                                           0.00409374991f,  0.00465624966f,  0.00521875033f,  0.00578125007f,
                                           0.00634374982f,  0.00690625003f,  0.00746874977f,  0.00803124998f,
                                           0.00859375019f,  0.00915624946f,  0.00971874967f,  0.0114062503f,
                                           0.0142187504f,   0.0170312505f,   0.0198437516f,   0.0226562507f,
                                           0.0254687499f,   0.028281251f,    0.0310937501f,   0.0339062512f,
                                           0.0367187522f,   0.0395312496f,   0.0423437469f,   0.0451562516f,
                                           0.047968749f,    0.05078125f,     0.053593751f,    0.0564062484f,
                                           0.0592187531f,   0.0620312504f,   0.0648437515f,   0.0676562563f,
                                           0.0704687461f,   0.0732812509f,   0.0760937482f,   0.078906253f,
                                           0.0817187577f,   0.0845312476f,   0.0873437524f,   0.0901562497f,
                                           0.0929687545f,   0.0957812592f,   0.0985937491f,   0.107031256f,
                                           0.12109375f,     0.135156244f,    0.149218753f,    0.163281247f,
                                           0.177343756f,    0.19140625f,     0.205468744f,    0.219531253f,
                                           0.233593747f,    0.247656241f,    0.26171875f,     0.275781274f,
                                           0.289843738f,    0.303906262f,    0.317968726f,    0.33203125f,
                                           0.346093744f,    0.360156238f,    0.374218762f,    0.388281226f,
                                           0.40234375f,     0.416406244f,    0.430468738f,    0.444531262f,
                                           0.458593726f,    0.47265625f,     0.486718714f,    0.500781238f,
                                           0.514843702f,    0.528906226f,    0.54296875f,     0.557031274f,
                                           0.571093798f,    0.585156262f,    0.599218726f,    0.61328125f,
                                           0.627343774f,    0.641406298f,    0.655468762f,    0.669531226f,
                                           0.68359375f,     0.697656274f,    0.711718798f,    0.725781262f,
                                           0.739843726f,    0.75390625f,     0.767968774f,    0.782031238f,
                                           0.796093762f,    0.810156226f,    0.82421875f,     0.838281274f,
                                           0.852343738f,    0.866406262f,    0.880468726f,    0.89453125f,
                                           0.908593774f,    0.922656238f,    0.936718762f,    0.950781226f,
                                           0.96484375f,     0.978906274f,    0.992968738f,    1.0f};
constexpr float scale_value(std::uint8_t code) {
  return code == 127 ? 0.0f : code > 127 ? kScaleParts[code - 128] : -kScaleParts[126 - code];
}

// The scales of a block of `format`.
inline void read_nf4_scales(StorageFormat format, const std::byte* block, float* scales) {
  if (format == StorageFormat::nf4_plain) {
    std::memcpy(scales, block, kNf4Scales * sizeof(float));
    return;
  }
  float shared, offset;
  std::memcpy(&shared, block, sizeof shared);
  std::memcpy(&offset, block + sizeof shared, sizeof offset);
  for (std::size_t i = 0; i < kNf4Scales; ++i)
    scales[i] = scale_value(static_cast<std::uint8_t>(block[kNf4ScaleBytes + i])) * shared + offset;
}

}  // namespace strata::device

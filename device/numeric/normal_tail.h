#pragma once

namespace strata::device {

// P(X > a) of a standard normal X, for a >= 0, is e^(-a^2 / 2) p(t) with t = (a - 2) / (a + 2). p interpolates e^(a^2 /
// 2) erfc(a / sqrt 2) / 2 at Chebyshev's points, within 1.4e-7 of its value in fp32. The GELU uses it, and both twins
// evaluate it in the same way. Beyond kNormalTailEnd, the tail is below the smallest fp32 number.
inline constexpr float kNormalTail[] = {0.16810199618339539f,    -0.2509531080722809f,    0.09005050361156464f,
                                        0.001980056054890156f,   -0.00929783470928669f,   -0.0015614363364875317f,
                                        0.0011993955122306943f,  0.000674479000736028f,   -1.0183543963648845e-05f,
                                        -0.0001424075453542173f, -4.6300301619339734e-05f};
inline constexpr int kNormalTailDegree = 10;
inline constexpr float kNormalTailEnd = 15.0f;

}  // namespace strata::device

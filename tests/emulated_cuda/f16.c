/* 16-bit floats on the host. */
#include <math.h>

#include "emulate.h"

float gpu_from_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023U;

    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    if (exponent == 31)
        return gpu_float_of_bits(sign | 0x7f800000U | fraction << 13);
    return gpu_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Round to nearest, ties to even. */
uint16_t gpu_to_f16(float value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const float magnitude = fabsf(value);
    int exponent;
    float scaled;

    if (isnan(value))
        return 0x7fff;
    if (magnitude == 0) /* which frexpf gives no exponent */
        return sign;
    if (magnitude >= 65520)
        return sign | 0x7c00;
    (void)frexpf(magnitude, &exponent); /* magnitude = f * 2^exponent, f in [0.5, 1) */
    if (exponent < -13)
        exponent = -13;                                    /* subnormal: steps of 2^-24 */
    scaled = nearbyintf(ldexpf(magnitude, 11 - exponent)); /* in units of the last place */
    /* 1024..2048 for normal numbers; a carry into the exponent comes out right by itself. */
    return (uint16_t)(sign | (uint16_t)((int)scaled + ((exponent + 13) << 10)));
}

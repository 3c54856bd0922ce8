/* Whole JPEGs as a device decodes them, beside libjpeg, before anything is cropped or resized. */
#ifndef SUPPORT_DECODED_H
#define SUPPORT_DECODED_H

#include <stdbool.h>

#include "backend/backend.h"

/* Decodes noise of every kind that Convoy could leave to the device, at three sizes, all at once, each alone, and
 * beside a damaged file. What Convoy does leave to it must be libjpeg's pixels within the rounding of a decoder of its
 * own, `exactly` or; the chroma filter must be the one that the device says. Prints a table of all that it saw where
 * something was wrong, and wherever `exactly` is not asked for. */
void support_check_decoded(cvy_device *device, bool exactly);

#endif

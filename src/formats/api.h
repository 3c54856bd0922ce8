/* Reading JSON, whole or as a stream, and protocol buffers as text; the folders inside read and write binary formats.
 */
#ifndef CVY_FORMATS_API_H
#define CVY_FORMATS_API_H

#include "formats/json_in.h"
#include "formats/json_stream.h"
#include "formats/text_proto.h"

#endif

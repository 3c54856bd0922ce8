/* Pieces of HTML, SVG and XML text. */
#ifndef CVY_REPORT_DRAWING_HTML_H
#define CVY_REPORT_DRAWING_HTML_H

#include <stdbool.h>

#include "base/memory.h"

/* Text that may hold anything: markup escaped, control characters and broken UTF-8 replaced. NULL writes nothing. */
void cvy_html_escaped(struct cvy_text *out, const char *text);
/* A number of a drawing: one decimal, a tenth of a pixel. */
void cvy_html_coordinate(struct cvy_text *out, double value);
/* ` name="value"`, value as cvy_html_coordinate writes it. */
void cvy_html_attribute(struct cvy_text *out, const char *name, double value);
/* "%.*f" with a point whatever the locale; "n/a" for a value that is not finite. */
void cvy_html_fixed(struct cvy_text *out, double value, int decimals);
/* Base64 with padding (RFC 4648). */
void cvy_base64(struct cvy_text *out, const void *data, size_t size);
/* Base64 and nothing else, or NULL: text that goes into a page as it is. */
bool cvy_is_base64(const char *text);

#endif

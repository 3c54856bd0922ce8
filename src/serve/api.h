/* Networks that answer over HTTP: convoy/program/serve.h, and what `convoy info` says of it. */
#ifndef CVY_SERVE_API_H
#define CVY_SERVE_API_H

#include "serve/library.h"

#endif

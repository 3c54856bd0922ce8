/* Networks that answer over HTTP. What others use is in convoy/program/serve.h. */
#ifndef CVY_SERVE_API_H
#define CVY_SERVE_API_H

#endif

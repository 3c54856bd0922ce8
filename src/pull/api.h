/* Downloading published weights. What others use is in convoy/pull.h. */
#ifndef CVY_PULL_API_H
#define CVY_PULL_API_H

#endif

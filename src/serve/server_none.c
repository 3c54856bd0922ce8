/* Builds without libmicrohttpd's header have no server. */
#include <stdio.h>

#include "base/error.h"
#include "convoy/program/serve.h"
#include "serve/library.h"

static const char missing[] = "this build has no server: libmicrohttpd's header was not there when it was made";

cvy_status cvy_server_open(const struct cvy_server_options *options, cvy_server **server)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(server);
    *server = NULL;
    return cvy_fail(CVY_UNAVAILABLE, "%s", missing);
}

const char *cvy_server_address(const cvy_server *server)
{
    (void)server;
    return NULL;
}

const char *cvy_server_network(const cvy_server *server, int index, bool *detects)
{
    (void)server;
    (void)index;
    (void)detects;
    return NULL;
}

cvy_status cvy_server_run(cvy_server *server)
{
    CVY_REQUIRE(server);
    return cvy_fail(CVY_UNAVAILABLE, "%s", missing);
}

void cvy_server_stop(cvy_server *server)
{
    (void)server;
}

void cvy_server_close(cvy_server *server)
{
    (void)server;
}

const char *cvy_server_text(char buffer[512], bool *available)
{
    *available = false;
    snprintf(buffer, 512, "%s", missing);
    return buffer;
}

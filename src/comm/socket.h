/* TCP sockets whose calls never block past a deadline. */
#ifndef CVY_COMM_SOCKET_H
#define CVY_COMM_SOCKET_H

#include <stdbool.h>

#include "convoy/status.h"

/* Listen on the loopback where `host` names it, on that address of it ("localhost", "127.0.1.1", "::1"); else on the
 * one address that the name has, if it is this host's; else (no name, several addresses, a name that means the loopback
 * here and this host elsewhere) on every address of this host. *port 0: any free one, told there. */
CVY_CHECKED cvy_status cvy_socket_listen(const char *host, int *port, int *socket);
/* Whether a host name means the loopback interface. */
bool cvy_socket_is_local(const char *host);
/* Whether this host can resolve a name (or an address as text). */
bool cvy_socket_knows(const char *host);
/* An address of this host, as text, by which others may reach it: of the first network that is up, IPv4 before IPv6; ""
 * where there is only the loopback. */
void cvy_socket_own_address(char *text, size_t size);
/* The address of this host's end of a connection, as text; "" where it is not known. */
void cvy_socket_local_address(int socket, char *text, size_t size);
/* Tries each address in turn until `deadline` (cvy_clock). `early`: the listener may not be up yet, so a refused
 * connection is retried; else it is an error. `alarm`: a descriptor that ends the attempts when it can be read; -1:
 * none. */
CVY_CHECKED cvy_status cvy_socket_connect(const char *host, int port, double deadline, bool early, int alarm,
                                          int *socket);
/* *socket is -1 when no connection is pending. `from` is the peer's address as text. */
CVY_CHECKED cvy_status cvy_socket_accept(int listener, int *socket, char *from, size_t from_size);

/* The result of a transfer. */
enum cvy_socket_result { CVY_SOCKET_DONE, CVY_SOCKET_CLOSED, CVY_SOCKET_TIMEOUT, CVY_SOCKET_ALARM };
/* Transfers all of `bytes`, or returns why not. `alarm`: a descriptor that ends the wait when it can be read; -1: none.
 */
enum cvy_socket_result cvy_socket_send(int socket, const void *data, size_t bytes, double deadline, int alarm);
enum cvy_socket_result cvy_socket_receive(int socket, void *data, size_t bytes, double deadline, int alarm);
/* Non-blocking: the number of bytes moved, 0 if it would block, -1 if the peer is gone. */
long cvy_socket_try_send(int socket, const void *data, size_t bytes);
long cvy_socket_try_receive(int socket, void *data, size_t bytes);
/* Wait until `out` (-1: none) can be written or `in` (-1: none) read; CVY_SOCKET_DONE. */
enum cvy_socket_result cvy_socket_wait(int out, int in, double deadline, int alarm);

#endif

/* TCP sockets. */
#include "comm/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system.h"

enum {
    BACKLOG = 1024,
    RETRY_MILLISECONDS = 50,
    ATTEMPT_SECONDS = 5 /* a host may have addresses that swallow what is sent there */
};

/* Milliseconds until then, for poll: rounded up, so that nothing spins in the last one. */
static int milliseconds(double deadline)
{
    const double left = 1000 * (deadline - cvy_clock());

    return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

static void prepare(int socket)
{
    const int one = 1;

    (void)fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* ---- meeting ---- */

bool cvy_socket_is_local(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

bool cvy_socket_knows(const char *host)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses;

    if (getaddrinfo(host, NULL, &hints, &addresses) != 0)
        return false;
    freeaddrinfo(addresses);
    return true;
}

void cvy_socket_own_address(char *text, size_t size)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *all;

    text[0] = '\0';
    if (getifaddrs(&all) != 0)
        return;
    for (size_t f = 0; f < 2 && !text[0]; f++) {
        for (const struct ifaddrs *one = all; one && !text[0]; one = one->ifa_next) {
            const bool fits = one->ifa_addr && one->ifa_addr->sa_family == families[f] && (one->ifa_flags & IFF_UP) &&
                              !(one->ifa_flags & IFF_LOOPBACK);
            const socklen_t length = f == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            if (fits && getnameinfo(one->ifa_addr, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
                text[0] = '\0';
        }
    }
    freeifaddrs(all);
}

void cvy_socket_local_address(int socket, char *text, size_t size)
{
    union {
        struct sockaddr any;
        struct sockaddr_storage capacity;
    } name;
    socklen_t length = sizeof name;

    if (getsockname(socket, &name.any, &length) != 0 ||
        getnameinfo(&name.any, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
        text[0] = '\0';
}

static int listen_at(const struct sockaddr *name, socklen_t size)
{
    const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, zero = 0;
    int reason;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (name->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, name, size) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

/* On the only address of a name off the loopback; -1: it has several or none, or it is not an address of this host. */
static int open_named_listener(const char *host, int port)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses;
    char service[16], text[64];
    int fd = -1;

    snprintf(service, sizeof service, "%d", port);
    if (!*host || getaddrinfo(host, service, &hints, &addresses) != 0)
        return -1;
    if (!addresses->ai_next &&
        getnameinfo(addresses->ai_addr, addresses->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
        !cvy_socket_is_local(text))
        fd = listen_at(addresses->ai_addr, addresses->ai_addrlen);
    freeaddrinfo(addresses);
    return fd;
}

/* Both families on one socket where the system has IPv6, else IPv4 alone. */
static int open_listener(const char *host, int port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in6 name;
    } six = {.name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons((uint16_t)port)}};
    union {
        struct sockaddr any;
        struct sockaddr_in name;
    } four = {.name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_ANY)}, .sin_port = htons((uint16_t)port)}};
    int fd = -1;

    errno = 0;
    if (strcmp(host, "::1") == 0)
        six.name.sin6_addr = in6addr_loopback;
    else if (cvy_socket_is_local(host) && inet_pton(AF_INET, host, &four.name.sin_addr) != 1)
        four.name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!cvy_socket_is_local(host))
        fd = open_named_listener(host, port);
    if (fd < 0 && errno == EADDRINUSE)
        return fd;
    if (fd < 0 && (strcmp(host, "::1") == 0 || !cvy_socket_is_local(host)))
        fd = listen_at(&six.any, sizeof six.name);
    if (fd < 0 && strcmp(host, "::1") != 0)
        fd = listen_at(&four.any, sizeof four.name);
    return fd;
}

/* The port of a listening socket. */
static cvy_status port_of(int socket, int *port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } name;
    socklen_t size = sizeof name;

    memset(&name, 0, sizeof name);
    if (getsockname(socket, &name.any, &size) != 0)
        return cvy_fail_errno(CVY_FAILED, "cannot ask for the port of a socket");
    *port = ntohs(name.any.sa_family == AF_INET6 ? name.six.sin6_port : name.four.sin_port);
    return CVY_OK;
}

cvy_status cvy_socket_listen(const char *host, int *port, int *socket)
{
    *socket = open_listener(host, *port);
    if (*socket < 0)
        return cvy_fail_errno(CVY_FAILED, "cannot listen on port %d", *port);
    prepare(*socket);
    return port_of(*socket, port);
}

/* One attempt at one address; -1 with errno. */
static int attempt(const struct addrinfo *address, double deadline, int alarm)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int reason = 0;
    socklen_t size = sizeof reason;

    if (fd < 0)
        return -1;
    prepare(fd);
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0)
        return fd;
    reason = errno;
    if (reason == EINPROGRESS) {
        if (cvy_socket_wait(fd, -1, deadline, alarm) != CVY_SOCKET_DONE)
            reason = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) == 0 && reason == 0)
            return fd;
    }
    close(fd);
    errno = reason;
    return -1;
}

/* All addresses of a host once, none for longer than its share; -1 with errno. */
static int attempt_all(const struct addrinfo *addresses, double deadline, int alarm)
{
    int fd = -1;

    errno = ETIMEDOUT;
    for (const struct addrinfo *one = addresses; one && fd < 0; one = one->ai_next) {
        const double share = cvy_clock() + ATTEMPT_SECONDS;

        fd = attempt(one, share < deadline ? share : deadline, alarm);
    }
    return fd;
}

/* A pause; false once nobody is to go on. */
static bool may_retry(double deadline, int alarm)
{
    const double pause = cvy_clock() + RETRY_MILLISECONDS * 1e-3;

    return cvy_clock() < deadline && cvy_socket_wait(-1, -1, pause, alarm) != CVY_SOCKET_ALARM;
}

cvy_status cvy_socket_connect(const char *host, int port, double deadline, bool early, int alarm, int *socket)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char service[16];
    int reason;

    *socket = -1;
    snprintf(service, sizeof service, "%d", port);
    do {
        struct addrinfo *addresses = NULL;
        const int unknown = getaddrinfo(host, service, &hints, &addresses);

        if (unknown && (unknown != EAI_AGAIN || cvy_clock() >= deadline))
            return cvy_fail(CVY_FAILED, "cannot find the host %s: %s", cvy_quote(host), gai_strerror(unknown));
        *socket = attempt_all(addresses, deadline, alarm);
        reason = errno;
        if (!unknown)
            freeaddrinfo(addresses);
        if (*socket >= 0)
            return CVY_OK;
    } while ((early || reason != ECONNREFUSED) && may_retry(deadline, alarm));
    errno = reason;
    return cvy_fail_errno(CVY_FAILED, "cannot reach port %d of %s", port, cvy_quote(host));
}

cvy_status cvy_socket_accept(int listener, int *socket, char *from, size_t from_size)
{
    *socket = -1;
    for (;;) {
        union {
            struct sockaddr any;
            struct sockaddr_storage capacity;
        } name;
        socklen_t size = sizeof name;
        const int fd = accept4(listener, &name.any, &size, SOCK_CLOEXEC);

        if (fd >= 0) {
            prepare(fd);
            if (getnameinfo(&name.any, size, from, (socklen_t)from_size, NULL, 0, NI_NUMERICHOST) != 0)
                from[0] = '\0';
            if (strncmp(from, "::ffff:", 7) == 0) /* IPv4 on a socket of both families */
                memmove(from, from + 7, strlen(from + 7) + 1);
            *socket = fd;
            return CVY_OK;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return cvy_fail_errno(CVY_FAILED, "cannot accept a connection");
        return CVY_OK;
    }
}

/* ---- bytes ---- */

long cvy_socket_try_send(int socket, const void *data, size_t bytes)
{
    for (;;) {
        const ssize_t sent = send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0)
            return (long)sent;
        if (errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    }
}

long cvy_socket_try_receive(int socket, void *data, size_t bytes)
{
    for (;;) {
        const ssize_t got = recv(socket, data, bytes, MSG_DONTWAIT);

        if (got != 0 && (got > 0 || errno != EINTR))
            return got > 0 ? (long)got : errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        if (got == 0)
            return bytes == 0 ? 0 : -1;
    }
}

enum cvy_socket_result cvy_socket_wait(int out, int in, double deadline, int alarm)
{
    for (;;) {
        struct pollfd fds[] = {{out, POLLOUT, 0}, {in, POLLIN, 0}, {alarm, POLLIN, 0}}; /* below 0: left out */
        const int left = milliseconds(deadline);
        const int ready = poll(fds, 3, left);

        if (ready > 0)
            return fds[2].revents ? CVY_SOCKET_ALARM : CVY_SOCKET_DONE;
        if (ready == 0 && left == 0)
            return CVY_SOCKET_TIMEOUT;
    }
}

enum cvy_socket_result cvy_socket_send(int socket, const void *data, size_t bytes, double deadline, int alarm)
{
    const char *from = data;

    while (bytes > 0) {
        const long moved = cvy_socket_try_send(socket, from, bytes);

        if (moved < 0)
            return CVY_SOCKET_CLOSED;
        from += moved;
        bytes -= (size_t)moved;
        if (moved == 0) {
            const enum cvy_socket_result end = cvy_socket_wait(socket, -1, deadline, alarm);
            if (end != CVY_SOCKET_DONE)
                return end;
        }
    }
    return CVY_SOCKET_DONE;
}

enum cvy_socket_result cvy_socket_receive(int socket, void *data, size_t bytes, double deadline, int alarm)
{
    char *to = data;

    while (bytes > 0) {
        const long moved = cvy_socket_try_receive(socket, to, bytes);

        if (moved < 0)
            return CVY_SOCKET_CLOSED;
        to += moved;
        bytes -= (size_t)moved;
        if (moved == 0) {
            const enum cvy_socket_result end = cvy_socket_wait(-1, socket, deadline, alarm);
            if (end != CVY_SOCKET_DONE)
                return end;
        }
    }
    return CVY_SOCKET_DONE;
}

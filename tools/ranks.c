/* The parent of the ranks of one machine, and what a rank knows of it. */
#include "ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "convoy/program/program.h"
#include "cores.h"
#include "terminal.h"

enum {
    GRACE_SECONDS = 15, /* for the ranks to end by themselves once one has failed, or to go on once others have ended */
    LOG_TAIL = 2000,    /* bytes of a failed rank's log that are shown */
    LOG_MOVED = 1       /* a log that begins with it is the path of another file */
};

struct process {
    pid_t pid; /* 0: ended */
    int status;
    bool stopped; /* by SIGSTOP and the like: it does nothing */
    int log;      /* a file without a name, of this process alone; 0 of rank 0 */
};

struct group {
    struct process *processes;
    int count, running;
    int failed;          /* the rank that failed first; -1: none */
    int frozen;          /* the first rank that was killed because it did not go on when others had ended; -1: none */
    double deadline;     /* of the ranks that run; once one has failed */
    double frozen_since; /* all that run are stopped, and others have ended; 0: that is not so */
    int port, listener;
    char key[33];
    char **command; /* argv of the ranks; the strings live in `words` */
    char *words;
    struct cores cores;
    const char *const *near; /* for each rank (cores.h) */
};

/* ---- being a rank ---- */

bool ranks_launched(void)
{
    return getenv("CONVOY_LAUNCHED") != NULL;
}

static void copy_file(int from, int to)
{
    char block[4096];
    ssize_t got;

    for (off_t at = 0; (got = pread(from, block, sizeof(block), at)) > 0; at += got) {
        if (write(to, block, (size_t)got) != got)
            return;
    }
}

void ranks_move_log(const char *run_directory, int rank)
{
    char path[PATH_MAX];
    if (!getenv("CONVOY_RANK_LOG") || !*run_directory || rank == 0 ||
        snprintf(path, sizeof(path), "%s/rank-%d.log", run_directory, rank) >= (int)sizeof(path))
        return;
    fflush(NULL);
    const int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    const int first = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (to < 0 || first < 0) {
        terminal_note("rank %d has no log in the run directory: %s\n", rank, strerror(errno));
    } else {
        copy_file(first, to);
        /* The starting process shows its end if the rank fails: from now on, where it is. */
        char *whole = realpath(path, NULL);
        if (dup2(to, STDOUT_FILENO) >= 0 && dup2(to, STDERR_FILENO) >= 0 && whole && ftruncate(first, 0) == 0 &&
            dprintf(first, "%c%s", LOG_MOVED, whole) < 0)
            terminal_note("the starting process will not show the end of this log\n");
        free(whole);
    }
    if (to >= 0)
        close(to);
    if (first >= 0)
        close(first);
}

bool ranks_same_signal(void)
{
    static struct timespec last;
    struct timespec now;
    if (!ranks_launched() || clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return false;
    const double seconds =
        last.tv_sec ? (double)(now.tv_sec - last.tv_sec) + 1e-9 * (double)(now.tv_nsec - last.tv_nsec) : 1e9;
    if (seconds >= 1)
        last = now;
    return seconds < 1;
}

/* ---- starting ranks ---- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The command line of this process, as it was given. */
static bool read_command(struct group *group)
{
    size_t size = 0, capacity = 1 << 16, count = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    group->words = malloc(capacity);
    while (file && group->words) {
        const size_t got = fread(group->words + size, 1, capacity - size, file);
        size += got;
        if (size < capacity || got == 0)
            break;
        char *larger = realloc(group->words, capacity *= 2);
        if (!larger)
            break;
        group->words = larger;
    }
    if (file)
        fclose(file);
    if (!group->words || size == 0 || size >= capacity || group->words[size - 1])
        return false;
    for (size_t i = 0; i < size; i++)
        count += !group->words[i];
    group->command = calloc(count + 1, sizeof(*group->command));
    for (size_t i = 0, at = 0; group->command && at < size; at += strlen(group->words + at) + 1)
        group->command[i++] = group->words + at;
    return group->command != NULL;
}

/* Where rank 0 will be met: the socket is made here, so that nobody else can take the port. */
static bool make_listener(struct group *group)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(name);
    unsigned char random[16];
    group->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (group->listener < 0 || bind(group->listener, (const struct sockaddr *)&name, sizeof(name)) != 0 ||
        listen(group->listener, 1024) != 0 || getsockname(group->listener, (struct sockaddr *)&name, &size) != 0 ||
        getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return false;
    group->port = ntohs(name.sin_port);
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(group->key + 2 * i, 3, "%02x", random[i]);
    return true;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* In the new process: never returns. */
static void become_rank(const struct group *group, int rank, pid_t parent, int log, const sigset_t *mask)
{
    static struct cores share;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives the one that would end it */
    if (getppid() != parent)
        _exit(CVY_FAILED);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", group->count);
    set_number("LOCAL_WORLD_SIZE", group->count);
    set_number("MASTER_PORT", group->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("CONVOY_COMM_KEY", group->key, 1);
    setenv("CONVOY_LAUNCHED", "1", 1);
    unsetenv("CONVOY_COMM_PORT"); /* else they would look for rank 0 elsewhere */
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    if (rank == 0) {
        set_number("CONVOY_COMM_LISTENER", group->listener);
        fcntl(group->listener, F_SETFD, 0);
    } else {
        const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
        setenv("CONVOY_RANK_LOG", "1", 1);
        dup2(nothing, STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
    }
    cores_share(&group->cores, group->near, rank, group->count, &share);
    cores_bind(&share);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv("/proc/self/exe", group->command);
    _exit(CVY_FAILED);
}

/* A new file in TMPDIR or /tmp, without a name, so that nothing is left whoever is killed; -1 with errno. */
static int make_log(void)
{
    const char *given = getenv("TMPDIR"), *folder = given && *given ? given : "/tmp";
    char path[PATH_MAX];
    int log = open(folder, O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (log >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return log;
    if (snprintf(path, sizeof(path), "%s/convoy-XXXXXX", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    log = mkostemp(path, O_APPEND | O_CLOEXEC); /* a file system that has no files without names */
    if (log >= 0)
        unlink(path);
    return log;
}

static cvy_status start(struct group *group, const sigset_t *mask)
{
    const pid_t parent = getpid();
    for (int i = 0; i < group->count; i++) {
        struct process *process = &group->processes[i];
        int log = -1;
        if (i > 0) {
            log = make_log();
            if (log < 0)
                return terminal_fail(CVY_CANNOT_CREATE, "cannot create the log of rank %d: %s", i, strerror(errno));
            process->log = log;
        }
        fflush(NULL);
        process->pid = fork();
        if (process->pid == 0)
            become_rank(group, i, parent, log, mask);
        if (process->pid < 0) {
            process->pid = 0;
            return terminal_fail(CVY_FAILED, "cannot start process %d of %d: %s", i + 1, group->count, strerror(errno));
        }
        group->running++;
    }
    return CVY_OK;
}

/* ---- while they run ---- */

static void signal_all(const struct group *group, int number)
{
    for (int i = 0; i < group->count; i++) {
        if (group->processes[i].pid > 0)
            kill(group->processes[i].pid, number);
    }
}

static bool is_failure(int status)
{
    return !WIFEXITED(status) || (WEXITSTATUS(status) != CVY_OK && WEXITSTATUS(status) != CVY_STOPPED);
}

/* When several ended since the last poll, one that was ended by a signal comes first: the others may have ended because
 * of it. */
static void collect(struct group *group)
{
    const bool first = group->failed < 0;
    for (int i = 0; i < group->count; i++) {
        struct process *process = &group->processes[i];
        int status;
        if (process->pid == 0 || waitpid(process->pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != process->pid)
            continue;
        process->stopped = WIFSTOPPED(status);
        if (WIFSTOPPED(status) || WIFCONTINUED(status))
            continue;
        process->status = status;
        process->pid = 0;
        group->running--;
        if (!first || !is_failure(process->status))
            continue;
        if (group->failed < 0 || (WIFSIGNALED(process->status) && !WIFSIGNALED(group->processes[group->failed].status)))
            group->failed = i;
        group->deadline = seconds_now() + GRACE_SECONDS;
    }
}

/* Ranks that wait for others have a time limit of their own. Where the others have ended, nobody waits: those that are
 * left and stopped are killed after a while. */
static void end_frozen(struct group *group)
{
    int first = -1;
    bool running = false;
    for (int i = 0; i < group->count; i++) {
        const struct process *process = &group->processes[i];
        running |= process->pid > 0 && !process->stopped;
        first = first < 0 && process->pid > 0 ? i : first;
    }
    if (running || group->running == 0 || group->running == group->count || group->failed >= 0)
        group->frozen_since = 0;
    else if (group->frozen_since == 0)
        group->frozen_since = seconds_now();
    else if (seconds_now() > group->frozen_since + GRACE_SECONDS) {
        group->frozen = group->frozen < 0 ? first : group->frozen;
        signal_all(group, SIGKILL);
    }
}

/* Until all have ended. SIGINT of a terminal reaches the ranks by itself; what was sent to this process is passed on,
 * as is the end of the terminal, which is told to a session's first process alone. */
static void wait_for_all(struct group *group, const sigset_t *signals)
{
    while (group->running > 0) {
        const struct timespec moment = {.tv_nsec = 500000000};
        siginfo_t info;
        const int number = sigtimedwait(signals, &info, &moment);
        if (number > 0 && number != SIGCHLD && (info.si_code <= 0 || number == SIGHUP))
            signal_all(group, number);
        collect(group);
        if (group->failed >= 0 && seconds_now() > group->deadline)
            signal_all(group, SIGKILL);
        end_frozen(group);
    }
}

/* ---- the end ---- */

/* The last whole lines of a log; `log` stays open. */
static void show_tail(int log)
{
    char text[PATH_MAX + LOG_TAIL + 1];
    struct stat about;
    int file = log;
    ssize_t got = pread(log, text, PATH_MAX, 0);
    if (got > 1 && text[0] == LOG_MOVED) {
        text[got] = '\0';
        file = open(text + 1, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0 || fstat(file, &about) != 0)
        return;
    const off_t first = about.st_size > LOG_TAIL ? about.st_size - LOG_TAIL : 0;
    got = pread(file, text, LOG_TAIL, first);
    text[got > 0 ? got : 0] = '\0';
    const char *first_end = strchr(text, '\n');
    fputs(first == 0 || !first_end ? text : first_end + 1, stderr);
    if (file != log)
        close(file);
}

/* What the ranks' own messages do not say. */
static cvy_status report(const struct group *group)
{
    cvy_status status = CVY_OK;
    if (group->frozen > 0)
        return terminal_fail((cvy_status)WEXITSTATUS(group->processes[0].status),
                             "rank %d was stopped at its end and did not go on within %d s: killed; the others have "
                             "done everything",
                             group->frozen, GRACE_SECONDS);
    if (group->frozen == 0)
        return terminal_fail(CVY_FAILED,
                             "rank 0 was stopped when the others had ended, and did not go on within %d s: killed",
                             GRACE_SECONDS);
    if (group->failed >= 0) {
        const struct process *first = &group->processes[group->failed];
        if (WIFSIGNALED(first->status))
            return terminal_fail(CVY_FAILED, "rank %d was killed by signal %d (%s)", group->failed,
                                 WTERMSIG(first->status), strsignal(WTERMSIG(first->status)));
        status = (cvy_status)WEXITSTATUS(first->status);
        if (WIFEXITED(group->processes[0].status) && is_failure(group->processes[0].status))
            return status; /* it has said why: ranks tell one another */
        if (first->log > 0)
            show_tail(first->log);
        return terminal_fail(status, "rank %d ended with code %d", group->failed, (int)status);
    }
    for (int i = 0; i < group->count; i++) {
        if (WEXITSTATUS(group->processes[i].status) == CVY_STOPPED)
            status = CVY_STOPPED;
    }
    return status;
}

static void show_start(const struct group *group, const struct ranks_gpus *gpus)
{
    static struct cores share;
    terminal_note("%s", cvy_counted(group->count, "process"));
    for (int i = 0; gpus && i < group->count; i++)
        terminal_note(i ? " | %d" : ", GPUs %d", gpus->number[i]);
    if (group->cores.count < group->count) {
        terminal_note(", sharing %s\n", cvy_counted(group->cores.count, "core"));
        return;
    }
    terminal_note(", cores");
    for (int i = 0; i < group->count; i++) {
        cores_share(&group->cores, group->near, i, group->count, &share);
        for (int k = 0; k < share.count; k++)
            terminal_note(k > 0 ? ",%d" : i ? " | %d" : " %d", share.number[k]);
    }
    terminal_note("\n");
}

static void release(struct group *group)
{
    for (int i = 0; group->processes && i < group->count; i++) {
        if (group->processes[i].log > 0)
            close(group->processes[i].log);
    }
    if (group->listener >= 0)
        close(group->listener);
    free(group->processes);
    free(group->command);
    free(group->words);
}

/* Another program has started this process as a rank. */
cvy_status ranks_refuse_other_launchers(const char *option)
{
    const char *over = getenv("CONVOY_COMM");
    int ranks;
    if (over && *over && strcmp(over, "tcp") != 0)
        return terminal_fail(CVY_USAGE,
                             "option --%s connects its processes without MPI, but the environment variable CONVOY_COMM "
                             "is %s",
                             option, quoted(over));
    if (getenv("RANK") || getenv("WORLD_SIZE"))
        return terminal_fail(CVY_USAGE,
                             "option --%s starts all processes itself, but the environment variable "
                             "%s says that another program did",
                             option, getenv("RANK") ? "RANK" : "WORLD_SIZE");
    if (cvy_train_rank(&ranks) > 0 || ranks != 1)
        return terminal_fail(CVY_USAGE,
                             "option --%s starts all processes itself, but this one was started as a "
                             "rank by another program",
                             option);
    return CVY_OK;
}

cvy_status ranks_run(int count, const struct ranks_gpus *gpus)
{
    static const char *near[RANKS_MAX];
    static struct group group;
    static const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    sigset_t signals, before;
    cvy_status status = ranks_refuse_other_launchers(gpus ? "gpus" : "processes");
    if (status != CVY_OK)
        return status;
    for (int i = 0; i < count; i++)
        near[i] = gpus ? gpus->gpu[i].cores : "";
    group = (struct group){.count = count, .failed = -1, .frozen = -1, .listener = -1, .near = near};
    group.processes = calloc((size_t)count, sizeof(*group.processes));
    if (!group.processes || !read_command(&group)) {
        release(&group);
        return terminal_fail(CVY_FAILED, "cannot read the command line of this process");
    }
    if (!make_listener(&group)) {
        release(&group);
        return terminal_fail(CVY_FAILED, "cannot make a socket for the processes: %s", strerror(errno));
    }
    cores_find(&group.cores);
    show_start(&group, gpus);
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        sigaddset(&signals, caught[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);
    status = start(&group, &before);
    if (status != CVY_OK)
        signal_all(&group, SIGKILL);
    close(group.listener);
    group.listener = -1;
    wait_for_all(&group, &signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (status == CVY_OK)
        status = report(&group);
    release(&group);
    return status;
}

/* Searches for NVIDIA's libraries. */
#include "backend/cuda/find_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

static const char *const toolkit_folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
/* Prefixes of Pythons, conda's among them; ~ is the home directory. Those of the environment and of the python3 on PATH
 * come before them. */
static const char *const prefix_variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
static const char *const prefix_patterns[] = {
    "/usr/local", "/usr",    "/opt/*", "/opt/*/.venv", "/opt/*/venv", "/opt/*/envs/*", "/opt/.venv",
    "~/.local",   "~/.venv", "~/venv", "~/miniconda3", "~/anaconda3", "~/miniforge3"};
/* Where a prefix has libraries: conda puts them into lib itself, pip beside Python's packages. Newer packages of NVIDIA
 * share cu13, older ones have a folder each. */
static const char *const folders_of_prefix[] = {"lib/python3*/site-packages/nvidia/*/lib",
                                                "lib64/python3*/site-packages/nvidia/*/lib",
                                                "lib/python3*/dist-packages/nvidia/*/lib",
                                                "lib/python3*/site-packages/torchvision.libs",
                                                "lib",
                                                "targets/x86_64-linux/lib",
                                                "targets/sbsa-linux/lib"};
enum { MAX_LINKS = 16, MAX_PLACES = 900 /* characters in a sentence */ };

/* A search: where it has been, and what was found and would not do, is told in the end. */
struct search {
    const struct gpu_library *library;
    void *object;
    struct cvy_text places, refusals;
};

/* Loads `path` and keeps it if it is good. A plain name is looked for by the loader and may be missing silently. */
static bool try_file(struct search *search, const char *path)
{
    const bool named = strchr(path, '/') != NULL;
    char found[32] = "";

    if (named && access(path, R_OK) != 0)
        return false;
    search->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!search->object) {
        const char *why = dlerror();
        if (named)
            cvy_text_printf(&search->refusals, "; %s cannot be loaded: %s", cvy_quote(path),
                            why ? why : "unknown reason");
        return false;
    }
    if (!search->library->accept || search->library->accept(search->object, found))
        return true;
    cvy_text_printf(&search->refusals, "; %s is %s", cvy_quote(path), found);
    dlclose(search->object);
    search->object = NULL;
    return false;
}

/* The files of a name with a *. */
static bool try_files(struct search *search, const char *pattern)
{
    bool good = false;
    glob_t found;

    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc && !good; i++)
        good = try_file(search, found.gl_pathv[i]);
    globfree(&found);
    return good;
}

static bool try_folder(struct search *search, const char *folder, size_t length)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%.*s", (int)length, folder);
    if (access(path, X_OK) == 0)
        cvy_text_printf(&search->places, "%s%s", search->places.text ? ", " : "", path);
    for (const char *const *file = search->library->files; *file; file++) {
        const int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, *file);
        if (written <= 0 || (size_t)written >= sizeof path)
            continue;
        if (strchr(*file, '*') ? try_files(search, path) : try_file(search, path))
            return true;
    }
    return false;
}

static bool try_beside(struct search *search)
{
    Dl_info here;
    const char *slash;

    if (!dladdr(toolkit_folders, &here) || !here.dli_fname)
        return false;
    slash = strrchr(here.dli_fname, '/');
    return slash ? try_folder(search, here.dli_fname, (size_t)(slash - here.dli_fname)) : try_folder(search, ".", 1);
}

/* Every folder of libraries below one prefix. */
static bool try_prefix(struct search *search, const char *prefix)
{
    char pattern[PATH_MAX];
    bool good = false;

    for (size_t i = 0; i < sizeof folders_of_prefix / sizeof *folders_of_prefix && !good; i++) {
        const int written = snprintf(pattern, sizeof pattern, "%s/%s", prefix, folders_of_prefix[i]);
        glob_t found;
        if (written <= 0 || (size_t)written >= sizeof pattern || glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc && !good; k++)
            good = try_folder(search, found.gl_pathv[k], strlen(found.gl_pathv[k]));
        globfree(&found);
    }
    return good;
}

/* The prefix of bin/python3 is what holds bin/. */
static bool try_prefix_of(struct search *search, const char *program)
{
    char prefix[PATH_MAX];

    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(level ? prefix : strcpy(prefix, program), '/');
        if (!slash || slash == prefix)
            return false;
        *slash = '\0';
    }
    return try_prefix(search, prefix);
}

/* Follows a link by one step; false where `path` is none. */
static bool follow(char path[PATH_MAX])
{
    char target[PATH_MAX], joined[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target - 1);
    const char *slash = strrchr(path, '/');
    int written;

    if (length <= 0 || !slash)
        return false;
    target[length] = '\0';
    written = target[0] == '/' ? snprintf(joined, sizeof joined, "%s", target)
                               : snprintf(joined, sizeof joined, "%.*s/%s", (int)(slash - path), path, target);
    if (written <= 0 || (size_t)written >= sizeof joined)
        return false;
    memcpy(path, joined, (size_t)written + 1);
    return true;
}

/* The python3 that a shell would start. Each link on the way may lie in another prefix: that of a virtual environment
 * leads to its base. */
static bool try_python(struct search *search)
{
    const char *path = getenv("PATH");
    char program[PATH_MAX];

    for (const char *at = path ? path : ""; *at; at += *at == ':') {
        const size_t length = strcspn(at, ":");
        const int written = snprintf(program, sizeof program, "%.*s/python3", (int)length, at);
        const bool absolute = *at == '/';
        at += length;
        if (!absolute || written <= 0 || (size_t)written >= sizeof program || access(program, X_OK) != 0)
            continue;
        for (int links = 0; links < MAX_LINKS; links++) {
            if (try_prefix_of(search, program))
                return true;
            if (!follow(program))
                return false;
        }
        return false;
    }
    return false;
}

static bool try_pattern(struct search *search, const char *pattern)
{
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    bool good = false;
    glob_t found;
    int written;

    if (pattern[0] == '~' && (!home || home[0] != '/'))
        return false;
    written = pattern[0] == '~' ? snprintf(path, sizeof path, "%s%s", home, pattern + 1)
                                : snprintf(path, sizeof path, "%s", pattern);
    if (written <= 0 || (size_t)written >= sizeof path || glob(path, 0, NULL, &found) != 0)
        return false;
    for (size_t k = 0; k < found.gl_pathc && !good; k++)
        good = try_prefix(search, found.gl_pathv[k]);
    globfree(&found);
    return good;
}

static bool try_places(struct search *search)
{
    if (try_beside(search))
        return true;
    for (const char *const *file = search->library->files; *file; file++) {
        if (try_file(search, *file))
            return true;
    }
    for (size_t i = 0; i < sizeof toolkit_folders / sizeof *toolkit_folders; i++) {
        if (try_folder(search, toolkit_folders[i], strlen(toolkit_folders[i])))
            return true;
    }
    for (size_t i = 0; i < sizeof prefix_variables / sizeof *prefix_variables; i++) {
        const char *prefix = getenv(prefix_variables[i]);
        if (prefix && prefix[0] == '/' && try_prefix(search, prefix))
            return true;
    }
    if (try_python(search))
        return true;
    for (size_t i = 0; i < sizeof prefix_patterns / sizeof *prefix_patterns; i++) {
        if (try_pattern(search, prefix_patterns[i]))
            return true;
    }
    return false;
}

cvy_status gpu_library_find(const struct gpu_library *library, void **object)
{
    const char *named = library->variable ? getenv(library->variable) : NULL;
    struct search search = {.library = library};
    const char *refusals, *places;

    if (named && named[0]) {
        if (access(named, R_OK) != 0)
            return cvy_fail(CVY_UNAVAILABLE, "%s names %s for %s, which is not there", library->variable,
                            cvy_quote(named), library->title);
        (void)try_file(&search, named);
    } else {
        (void)try_places(&search);
    }
    *object = search.object;
    refusals = search.refusals.text && !search.refusals.failed ? search.refusals.text : "";
    places = search.places.text && !search.places.failed ? search.places.text : "no other folder";
    if (!search.object && named && named[0])
        (void)cvy_fail(CVY_UNAVAILABLE, "%s names no %s%s", library->variable, library->title, refusals);
    else if (!search.object)
        (void)cvy_fail(CVY_UNAVAILABLE,
                       "%s is not to be found: looked for %s where the loader looks and in %.*s%s%s%s%s",
                       library->title, library->files[0], MAX_PLACES, places, strlen(places) > MAX_PLACES ? " ..." : "",
                       library->variable ? "; the file can be named by " : "",
                       library->variable ? library->variable : "", refusals);
    cvy_text_release(&search.refusals);
    cvy_text_release(&search.places);
    return *object ? CVY_OK : CVY_UNAVAILABLE;
}

bool gpu_library_beside(void *object, const char *symbol, const char *name)
{
    const void *address = dlsym(object, symbol);
    char path[PATH_MAX];
    const char *slash;
    Dl_info found;

    if (!address || !dladdr(address, &found) || !found.dli_fname || !(slash = strrchr(found.dli_fname, '/')))
        return false;
    if (snprintf(path, sizeof path, "%.*s/%s", (int)(slash - found.dli_fname), found.dli_fname, name) >=
        (int)sizeof path)
        return false;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL; /* kept */
}

/* POSIX lets dlsym's result be a function. */
bool gpu_library_function(void *object, const char *name, void *to)
{
    void *symbol = dlsym(object, name);

    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

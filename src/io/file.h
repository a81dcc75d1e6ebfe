/* Files as the readers and writers of this layer want them: regular, of a
 * known size, and replaced as a whole or not at all. */
#ifndef SFP_IO_FILE_H
#define SFP_IO_FILE_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* A path by printf, in `to`, which has `size` bytes. */
sfp_status sfp__path_print(char *to, size_t size, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* A regular file, perhaps empty, to be read piece by piece; a FIFO or a device is an error at once. No such file:
 * SFP_ENOTFOUND. */
sfp_status sfp__file_open(const char *path, FILE **out, sfp_error *err);

/* OWNED_PTR(sfp__file_close) FILE *f = NULL; OWNED_BY(sfp__fd_close) int fd = -1; */
static inline void sfp__file_close(FILE *f)
{
    if (f)
        (void)fclose(f);
}
DEFINE_OWNED_PTR(FILE, sfp__file_close)
static inline void sfp__fd_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

/* The same as a descriptor, with its size. */
sfp_status sfp__fd_open(const char *path, int *out, size_t *size, sfp_error *err);
/* pread, as often as it takes: how many of the n bytes were there; -1 after an error, which errno tells. */
int64_t sfp__fd_read_at(int fd, void *bytes, size_t n, int64_t offset);

typedef struct sfp__map {
    const uint8_t *bytes;
    size_t size;
} sfp__map;

/* Maps a regular file that is not empty. A file that somebody shortens later raises SIGBUS when read: use file_read for
 * files that others write. No such file: SFP_ENOTFOUND. */
sfp_status sfp__map_open(const char *path, sfp__map *out, sfp_error *err);
void sfp__map_close(sfp__map *m);

/* Reads a whole regular file of 1..max_bytes bytes into a block of sfp__malloc. No such file: SFP_ENOTFOUND. */
sfp_status sfp__file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *size, sfp_error *err);

/* A file being replaced: bytes go to PATH.tmp.PID; commit makes them PATH (fsync, rename, fsync of the directory). Every
 * opened writer ends in one commit or abort; a commit that fails has aborted. `path` must outlive the writer. */
typedef struct sfp__writer {
    const char *path;
    char *tmp; /* NULL: not open */
    int fd;
} sfp__writer;

sfp_status sfp__writer_open(const char *path, sfp__writer *out, sfp_error *err);
sfp_status sfp__writer_put(sfp__writer *w, const void *bytes, size_t size, sfp_error *err);
sfp_status sfp__writer_commit(sfp__writer *out, sfp_error *err);
/* A writer that is not open: nothing. OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1}; */
void sfp__writer_abort(sfp__writer *w);

/* Before PATH is replaced: it becomes KEPT too, in place of what was there. Where the file system has no links it is only KEPT
 * then. No file at PATH: nothing to keep. */
sfp_status sfp__file_backup(const char *path, const char *kept, sfp_error *err);

/* The way back: PATH by `read`, or, when that is damaged or gone (SFP_EFORMAT, SFP_ELIMIT, SFP_EIO, SFP_ENOTFOUND), KEPT;
 * *used_kept tells. SFP_ENOTFOUND: there is neither. When both are damaged the message has both. */
typedef sfp_status (*sfp__file_reader)(void *ctx, const char *path, sfp_error *err);
sfp_status sfp__file_read_or_backup(const char *path, const char *kept, sfp__file_reader read, void *ctx, bool *used_kept,
                                    sfp_error *err);

/* All of it: PATH becomes these bytes, or stays as it was. */
sfp_status sfp__file_write(const char *path, const void *bytes, size_t size, sfp_error *err);

#endif

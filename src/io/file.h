/* Files: opened only if they are regular, read with a known size, and replaced completely or not at all. */
#ifndef SFP_IO_FILE_H
#define SFP_IO_FILE_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* Formats a path into `to`, which has `size` bytes. */
sfp_status sfp__path_print(char *to, size_t size, sfp_error *err, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Opens a regular file, which may be empty, for reading piece by piece. A FIFO or a device is an error, unless it is a pipe
 * passed by a shell, <(...). SFP_ENOTFOUND: no such file. */
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

/* Opens a regular file as a descriptor, with its size. */
sfp_status sfp__fd_open(const char *path, int *out, size_t *size, sfp_error *err);
/* Calls pread until n bytes are read or the file ends. Returns the number of bytes read; -1: error, with errno set. */
int64_t sfp__fd_read_at(int fd, void *bytes, size_t n, int64_t offset);

typedef struct sfp__map {
    const uint8_t *bytes;
    size_t size;
} sfp__map;

/* Maps a regular file that is not empty. If another process shortens the file later, reading the map raises SIGBUS; if it overwrites
 * the file, the bytes change. Only for short commands on files that may be larger than the memory. SFP_ENOTFOUND: no such file. */
sfp_status sfp__map_open(const char *path, sfp__map *out, sfp_error *err);
/* Reads a regular file that is not empty into memory of this process, which cannot be written to. Later changes of the file have no
 * effect. */
sfp_status sfp__map_read(const char *path, sfp__map *out, sfp_error *err);
void sfp__map_close(sfp__map *m);

/* Reads a whole regular file of 1..max_bytes bytes into a block of sfp__malloc. SFP_ENOTFOUND: no such file. */
sfp_status sfp__file_read(const char *path, size_t max_bytes, uint8_t **bytes, size_t *size, sfp_error *err);

/* Replaces a file: bytes are written to PATH.tmp.PID, which commit makes PATH (fsync, rename, fsync of the directory). Every
 * opened writer must be committed or aborted; a commit that fails has aborted. `path` must outlive the writer. Small pieces are
 * collected: a checkpoint has many small tensors. */
typedef struct sfp__writer {
    const char *path;
    char *tmp; /* NULL: not open */
    int fd;
    uint8_t *pending; /* in the block of tmp; NULL: pieces are not collected */
    size_t pending_bytes;
} sfp__writer;

sfp_status sfp__writer_open(const char *path, sfp__writer *out, sfp_error *err);
sfp_status sfp__writer_put(sfp__writer *w, const void *bytes, size_t size, sfp_error *err);
/* Writes the collected pieces: a full disk is found before the caller touches other files. */
sfp_status sfp__writer_flush(sfp__writer *w, sfp_error *err);
sfp_status sfp__writer_commit(sfp__writer *out, sfp_error *err);
/* Does nothing if the writer is not open. OWNED_BY(sfp__writer_abort) sfp__writer w = {.fd = -1}; */
void sfp__writer_abort(sfp__writer *w);

/* Backs up PATH before it is replaced: PATH is also linked as BACKUP and replaces a file of that name. If the file system has no
 * hard links, PATH is renamed to BACKUP. Does nothing if PATH does not exist. */
sfp_status sfp__file_backup(const char *path, const char *backup, sfp_error *err);

/* Reads PATH with `read`. If PATH is damaged or missing (SFP_EFORMAT, SFP_ELIMIT, SFP_EIO, SFP_ENOTFOUND), reads BACKUP and sets
 * *used_backup. SFP_ENOTFOUND: neither exists. If both are damaged, the message names both. */
typedef sfp_status (*sfp__file_reader)(void *ctx, const char *path, sfp_error *err);
sfp_status sfp__file_read_or_backup(const char *path, const char *backup, sfp__file_reader read, void *ctx, bool *used_backup,
                                    sfp_error *err);

/* Replaces PATH by these bytes; on failure PATH is unchanged. */
sfp_status sfp__file_write(const char *path, const void *bytes, size_t size, sfp_error *err);

#endif

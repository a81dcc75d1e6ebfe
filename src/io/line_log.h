/* A log of JSON lines, {"KEY":N,...} or {"KEY": N,...}, in which N never decreases. The file is rotated by size, and truncated when a run is
 * resumed. If another program renames, removes or truncates it, the next lines begin a new file. */
#ifndef SFP_IO_LINE_LOG_H
#define SFP_IO_LINE_LOG_H

#include "base/mem.h"
#include "base/text.h"

#include <stdint.h>

typedef struct sfp__line_log sfp__line_log;

/* Opens DIR/NAME. Lines numbered `from` or more are removed first, also from rotated files, because a resumed run writes them
 * again. An incomplete last line, which a crash left, is removed too. If `from` is 0, all lines are removed. `key` must be short
 * and outlive the log. A file that would exceed max_bytes (0: no limit) becomes NAME.1, the former NAME.1 becomes NAME.2, ... up
 * to `keep` old files. */
sfp_status sfp__line_log_open(const char *dir, const char *name, const char *key, uint64_t from, size_t max_bytes, int keep,
                              sfp__line_log **out, sfp_error *err);
/* Checks that the file is a log whose lines begin with {"KEY":N, or is empty. SFP_ENOTFOUND: there is none. SFP_EINVAL: it is a symbolic
 * link or not a regular file; its target must not be overwritten. SFP_EFORMAT: it is another file. */
sfp_status sfp__line_log_check(const char *path, const char *key, sfp_error *err);

/* Stores the number of the last line that remained after opening, in the file or in NAME.1; false: no line remained. */
bool sfp__line_log_last(const sfp__line_log *e, uint64_t *t);
/* Returns an empty text for the next line. The caller appends the line with its newline and then calls sfp__line_log_add. Lines
 * are collected in memory; after warm-up nothing is allocated. */
sfp__text *sfp__line_log_begin(sfp__line_log *e);
sfp_status sfp__line_log_add(sfp__line_log *e, sfp_error *err);
/* Writes the collected lines to the file: if the process is killed afterwards, they are not lost. On a full disk returns SFP_EIO:
 * the file then ends with a complete line, and the lines are kept for another attempt. */
sfp_status sfp__line_log_flush(sfp__line_log *e, sfp_error *err);
/* Like flush, and waits until the lines are on the disk: if the power fails afterwards, they are not lost. */
sfp_status sfp__line_log_sync(sfp__line_log *e, sfp_error *err);
void sfp__line_log_close(sfp__line_log *e); /* ignores errors: call sfp__line_log_flush first */
DEFINE_OWNED_PTR(sfp__line_log, sfp__line_log_close)

#endif

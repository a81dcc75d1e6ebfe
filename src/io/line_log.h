/* Lines of JSON that a run leaves: {"KEY":N,...} each, N never falling, in a file rotated by size, cut back when a run is
 * resumed.
 */
#ifndef SFP_IO_LINE_LOG_H
#define SFP_IO_LINE_LOG_H

#include "base/mem.h"
#include "base/text.h"

#include <stdint.h>

typedef struct sfp__line_log sfp__line_log;

/* DIR/NAME. Lines from number `from` on that a resumed run would write again are cut off first, in rotated files too; so is a
 * last line that was torn by a crash. from 0: all of them go. key: a few letters, which must stay. max_bytes: a file that would
 * grow beyond becomes NAME.1, that one .2, ... up to `keep` old ones; 0: never. */
sfp_status sfp__line_log_open(const char *dir, const char *name, const char *key, uint64_t from, size_t max_bytes, int keep,
                              sfp__line_log **out, sfp_error *err);
/* The number of the last line that opening left, in the file or the one rotated away last; false: there is none. */
bool sfp__line_log_last(const sfp__line_log *e, uint64_t *t);
/* An empty text for the next line, to be filled, newline included, and added. Lines gather in memory; after warm-up nothing is
 * allocated. */
sfp__text *sfp__line_log_begin(sfp__line_log *e);
sfp_status sfp__line_log_add(sfp__line_log *e, sfp_error *err);
/* Hands the lines to the system: a process that is killed afterwards loses none. A disk that is full: SFP_EIO, and the file ends
 * with a whole line; the lines are kept for another try. */
sfp_status sfp__line_log_flush(sfp__line_log *e, sfp_error *err);
/* The same, and waits until they are on the disk: a machine that loses its power afterwards loses none. */
sfp_status sfp__line_log_sync(sfp__line_log *e, sfp_error *err);
void sfp__line_log_close(sfp__line_log *e); /* flush first to hear of errors */
DEFINE_OWNED_PTR(sfp__line_log, sfp__line_log_close)

#endif

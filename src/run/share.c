#include "run/share.h"

#include "io/directory.h"
#include "io/file.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ----------------------------------------------------------------------- values */

void sfp__share_print(const sfp__share_value *v, char text[SFP__LOG_VALUE_MAX])
{
    text[0] = '\0';
    if (*v->file)
        (void)snprintf(text, SFP__LOG_VALUE_MAX, "%s %s %" PRId64 " %" PRIu64 " %016" PRIx64 " %" PRId64, v->file,
                       *v->previous ? v->previous : "-", v->sequence, v->samples, v->digest, v->offset);
}

/* Whether the name has the form UNIT.SEQUENCE.N.safetensors. */
static bool is_of_unit(const char *file, const char *unit)
{
    size_t length = strlen(unit);
    int n = 0;
    return strncmp(file, unit, length) == 0 && sscanf(file + length, ".%*[0-9].%*[0-9].safetensors%n", &n) == 0 && n > 0 &&
           file[length + (size_t)n] == '\0' && !strchr(unit, '/');
}

sfp_status sfp__share_parse(const char *text, const char *unit, sfp__share_value *out, sfp_error *err)
{
    sfp__share_value v = {.offset = -1};
    char shown[SFP__NAME_MAX], of[SFP__NAME_MAX];
    int n = 0;
    if (!*text) {
        *out = v;
        return SFP_OK;
    }
    bool fine = sscanf(text, "%127s %127s %" SCNd64 " %" SCNu64 " %" SCNx64 " %" SCNd64 "%n", v.file, v.previous, &v.sequence,
                       &v.samples, &v.digest, &v.offset, &n) == 6 &&
                text[n] == '\0' && v.sequence >= 0 && v.sequence < INT64_MAX && is_of_unit(v.file, unit);
    if (fine && strcmp(v.previous, "-") == 0)
        v.previous[0] = '\0';
    if (!fine || (*v.previous && !is_of_unit(v.previous, unit)))
        return sfp__fail(
            err, SFP_EFORMAT,
            "the committed value of '%s' is '%s', expected FILE PREVIOUS SEQUENCE SAMPLES DIGEST OFFSET with its files",
            sfp__printable(unit, of, sizeof of), sfp__printable(text, shown, sizeof shown));
    *out = v;
    return SFP_OK;
}

/* ---------------------------------------------------------------- the directory */

/* Moves the new file `made` to `path`, unless another worker has created `path` meanwhile; then `made` is removed and that file is used. */
static sfp_status link_once(const char *made, const char *path, sfp_error *err)
{
    int failed = link(made, path) == 0 || errno == EEXIST ? 0 : errno;
    (void)unlink(made);
    errno = failed;
    return failed ? sfp__fail_errno(err, SFP_EIO, "%s: cannot create the file", path) : SFP_OK;
}

/* Reads DIR/log. Kind, stream and group identify a log; its address may differ between machines. */
static sfp_status read_log_file(const char *dir, char **spec, sfp_error *err)
{
    char path[PATH_MAX];
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__path_print(path, sizeof path, err, "%s/" SFP__SHARE_LOG, dir));
    sfp_status status = sfp__file_read(path, 4096, &bytes, &size, err);
    if (status == SFP_ENOTFOUND)
        return sfp__fail(err, status, "%s: no file '" SFP__SHARE_LOG "', expected the --share directory of a run", dir);
    TRY(status);
    size_t n = 0;
    while (n < size && bytes[n] > ' ')
        n++;
    return sfp__text_new(spec, err, "%.*s", (int)n, (const char *)bytes);
}

static sfp_status check_log(const sfp__log *log, const char *dir, const char *made, sfp_error *err)
{
    char path[PATH_MAX], shown[SFP__NAME_MAX];
    OWNED char *spec = NULL, *mine = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *other = NULL;
    TRY(sfp__path_print(path, sizeof path, err, "%s/" SFP__SHARE_LOG, dir));
    TRY(sfp__text_new(&mine, err, "%s:%s\n", log->base.kind->name, log->base.path));
    TRY(sfp__file_write(made, mine, strlen(mine), err));
    TRY(link_once(made, path, err));
    TRY(read_log_file(dir, &spec, err));
    TRY(sfp__source_open(spec, &(const sfp__source_options){0}, &other, err));
    const sfp__log *theirs = sfp__source_log(other);
    if (theirs && theirs->ops == log->ops && strcmp(theirs->stream, log->stream) == 0 && strcmp(theirs->group, log->group) == 0)
        return SFP_OK;
    return sfp__fail_key(err, "share", SFP_EINVAL, "share %s is of %s, expected another directory for %s:%s", dir,
                         sfp__printable(spec, shown, sizeof shown), log->base.kind->name, log->base.path);
}

static sfp_status set_worker(sfp__log *log, const char *name, sfp_error *err)
{
    char host[256] = "worker", shown[SFP__NAME_MAX];
    if (!name) {
        (void)gethostname(host, sizeof host - 1);
        name = host;
    }
    size_t n = strlen(name), good = 0;
    while (good < n && (isalnum((unsigned char)name[good]) || strchr("._-", name[good])))
        good++;
    if (n == 0 || n >= SFP__LOG_NAME_MAX || good < n || *name == '.')
        return sfp__fail_key(err, "worker", SFP_EINVAL,
                             "worker is '%s', expected 1 to %d letters, digits, '-', '_' and '.' (--worker NAME)",
                             sfp__printable(name, shown, sizeof shown), SFP__LOG_NAME_MAX - 1);
    memcpy(log->worker, name, n + 1);
    return SFP_OK;
}

sfp_status sfp__share_open(sfp__log *log, sfp__learner *l, const sfp__run_options *o, sfp_error *err)
{
    char made[PATH_MAX], model[PATH_MAX];
    int created = 0;
    if (!o->share)
        return sfp__fail_key(err, "share", SFP_EINVAL,
                             "share is missing: %s needs a directory that all workers can reach (--share DIR)",
                             log->base.kind->name);
    if (o->out || o->init_state)
        return sfp__fail_key(err, o->out ? "out" : "init-state", SFP_EINVAL, "%s cannot be used with a log: %s",
                             o->out ? "out" : "init-state",
                             o->out ? "the share has what is learned" : "every worker would add it; merge it with their sums");
    TRY(sfp__learner_check_sums(l, err));
    if (o->learner.half_life > 0)
        return sfp__fail_key(err, "half-life", SFP_EINVAL, "half-life cannot be used with a log: such sums depend on the order");
    TRY(set_worker(log, o->worker, err));
    if (o->claim_seconds > 0)
        log->claim_seconds = o->claim_seconds;
    TRY(sfp__directory_create(o->share, &created, err));
    TRY(sfp__path_print(made, sizeof made, err, "%s/.new.%ld.%s", o->share, (long)getpid(), log->worker));
    TRY(sfp__path_print(model, sizeof model, err, "%s/" SFP__SHARE_MODEL, o->share));
    TRY(check_log(log, o->share, made, err));
    if (access(model, F_OK) != 0) {
        TRY(sfp__learner_checkpoint(l, made, "", err));
        TRY(link_once(made, model, err));
    }
    return sfp__learner_load(l, model, err); /* refuses another backbone, precision, size or method */
}

/* ---------------------------------------------------------------------- the sum */

typedef struct merging {
    const char *dir;
    sfp__thread_pool *threads;
    sfp__share_sum total; /* at first without samples */
    sfp__strings files;
} merging;

void sfp__share_sum_done(sfp__share_sum *s)
{
    sfp__saved_sums_done(&s->sum);
}

static void merging_done(merging *m)
{
    sfp__share_sum_done(&m->total);
    sfp__strings_done(&m->files);
}

static sfp_status read_sums(const merging *m, const char *file, sfp__saved_sums *out, sfp_error *err)
{
    char path[PATH_MAX];
    bool first = !m->total.sum.head;
    TRY(sfp__path_print(path, sizeof path, err, "%s/%s", m->dir, file));
    TRY(sfp__saved_sums_read(&(const sfp__saved_file){.path = path}, first ? NULL : &m->total.sum.metadata, m->total.sum.path,
                             m->threads, out, err));
    for (int c = 0; c < out->names.count; c++) /* removes names of classes of which only other units of the worker have samples */
        if (out->names.name[c] && sfp__head_label_samples(out->head, c) == 0) {
            sfp__free(out->names.name[c]);
            out->names.name[c] = NULL;
        }
    return SFP_OK;
}

static sfp_status list_unit(void *ctx, const char *unit, const char *value, sfp_error *err)
{
    merging *m = ctx;
    sfp__share_value v;
    TRY(sfp__share_parse(value, unit, &v, err));
    if (!*v.file)
        return SFP_OK;
    m->total.units++;
    m->total.digest += v.digest;
    return sfp__strings_add(&m->files, v.file, err);
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Numbers the classes of all files in the order of their names, so that the result does not depend on the order in which workers met them. */
static sfp_status number_classes(merging *m, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp__strings all = {0};
    for (int i = 0; i < m->files.count; i++) {
        OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
        TRY(read_sums(m, m->files.s[i], &s, err));
        for (int c = 0; c < s.names.count; c++)
            if (s.names.name[c] && sfp__strings_find(&all, s.names.name[c]) < 0)
                TRY(sfp__strings_add(&all, s.names.name[c], err));
    }
    if (all.count == 0)
        return SFP_OK;
    qsort((void *)all.s, (size_t)all.count, sizeof *all.s, compare_strings);
    return sfp__saved_sums_name(&m->total.sum, all.count, (const char *const *)all.s, err);
}

static sfp_status add_files(merging *m, sfp_error *err)
{
    TRY(number_classes(m, err));
    for (int i = 0; i < m->files.count; i++) {
        OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
        TRY(read_sums(m, m->files.s[i], &s, err));
        TRY(sfp__saved_sums_add(&m->total.sum, &s, err));
    }
    return SFP_OK;
}

/* A worker removes a file two commits after it was written. If a file is missing, its unit has therefore committed a newer one, so the committed
 * values are read again. */
sfp_status sfp__share_merge(const char *dir, sfp__thread_pool *threads, sfp__share_sum *out, sfp_error *err)
{
    OWNED char *spec = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *source = NULL;
    TRY(read_log_file(dir, &spec, err));
    TRY(sfp__source_open(spec, &(const sfp__source_options){0}, &source, err));
    sfp__log *log = sfp__source_log(source);
    if (!log)
        return sfp__fail(err, SFP_EFORMAT, "%s/" SFP__SHARE_LOG ": not a log", dir);
    TRY(log->ops->connect(log, err));
    for (int attempt = 0;; attempt++) {
        OWNED_BY(merging_done) merging m = {.dir = dir, .threads = threads};
        TRY(read_sums(&m, SFP__SHARE_MODEL, &m.total.sum, err));
        TRY(log->ops->each(log, list_unit, &m, err));
        sfp_status status = add_files(&m, err);
        if (status == SFP_ENOTFOUND && attempt < 10)
            continue;
        TRY(status);
        *out = m.total;
        m.total = (sfp__share_sum){0};
        return SFP_OK;
    }
}

/* Reads entries, labels and lists of classes of WebDataset tars (tar_sample.h). */
#include "stream/sources/tar_sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LABEL_BYTES_MAX 65536

void sfp__tar_sample_clear(sfp__tar_sample *s)
{
    sfp__free(s->bytes);
    s->bytes = NULL;
    s->key[0] = s->label[0] = s->name[0] = '\0';
    s->label_kind = SFP__TAR_UNLABELLED;
    s->has_image = false;
    s->size = 0;
}

size_t sfp__tar_key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static int label_kind_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    static const char *const suffix[] = {".cls", ".txt", ".json"};
    for (int k = 0; dot && k < SFP__TAR_UNLABELLED; k++) {
        if (strcasecmp(dot, suffix[k]) == 0)
            return k;
    }
    return SFP__TAR_UNLABELLED;
}

/* Stores the text of a label without the blanks around it; an empty text is no label. */
static sfp_status set_label(sfp__tar_sample *s, int kind, const char *bytes, size_t n, sfp_error *err)
{
    char number[32] = "";
    OWNED sfp__json_value *json = NULL;
    if (kind == SFP__TAR_JSON) {
        TRY(sfp__json_parse("label", bytes, n, &json, err));
        const sfp__json_value *v = json;
        static const char *const keys[] = {"label", "cls", "class"};
        for (int k = 0; k < 3 && sfp__json_is(v, SFP__JSON_OBJECT); k++)
            v = sfp__json_get(json, keys[k]) ? sfp__json_get(json, keys[k]) : v;
        n = 0;
        if (sfp__json_is(v, SFP__JSON_STRING)) {
            bytes = sfp__json_text(v);
            n = v->count;
        } else if (sfp__json_is(v, SFP__JSON_INTEGER)) {
            n = (size_t)snprintf(number, sizeof number, "%lld", (long long)sfp__json_integer(v));
            bytes = number;
        } else if (!sfp__json_is(v, SFP__JSON_OBJECT) && !sfp__json_is(v, SFP__JSON_NULL)) {
            return sfp__fail(err, SFP_EFORMAT, "label is neither a name nor a whole number");
        }
    }
    while (n > 0 && strchr(" \t\r\n", bytes[n - 1]))
        n--;
    for (; n > 0 && strchr(" \t\r\n", *bytes); n--)
        bytes++;
    if (n > SFP__CLASS_NAME_MAX)
        return sfp__fail(err, SFP_ELIMIT, "label has %zu bytes, expected at most %d", n, SFP__CLASS_NAME_MAX);
    if (memchr(bytes, 0, n) || memchr(bytes, '\n', n))
        return sfp__fail(err, SFP_EFORMAT, "label is not one line of text");
    if (n > 0) {
        memcpy(s->label, bytes, n);
        s->label[n] = '\0';
        s->label_kind = kind;
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ labels */

void sfp__tar_labels_done(sfp__tar_labels *t)
{
    sfp__names_done(&t->names);
    sfp__free(t->path);
    *t = (sfp__tar_labels){0};
}

/* Adds one line of a list: "12<tab>n02510455<tab>giant panda" is class 12 "giant panda"; a line without a tab is the name. */
static sfp_status add_listed(sfp__tar_labels *t, const char *line, size_t n, uint64_t number, sfp_error *err)
{
    const char *tab = memchr(line, '\t', n), *last = line, *end = line + n;
    char name[SFP__CLASS_NAME_MAX + 1];
    int32_t id;
    for (const char *p = tab; p; p = memchr(p + 1, '\t', (size_t)(end - p - 1)))
        last = p + 1;
    size_t length = (size_t)(end - last);
    if (tab) {
        char *stop = NULL;
        long k = line[0] >= '0' && line[0] <= '9' ? strtol(line, &stop, 10) : -1;
        if (k != t->names.count || stop != tab)
            return sfp__fail(err, SFP_EFORMAT, "%s:%llu: line has another form, expected %d<tab>NAME", t->path,
                             (unsigned long long)number, t->names.count);
    }
    if (length > SFP__CLASS_NAME_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s:%llu: name has %zu bytes, expected at most %d", t->path, (unsigned long long)number,
                         length, SFP__CLASS_NAME_MAX);
    memcpy(name, last, length);
    name[length] = '\0';
    if (sfp__names_find(&t->names, name, length) >= 0) { /* ImageNet has two classes named crane */
        size_t more = (size_t)snprintf(name + length, sizeof name - length, " (%d)", t->names.count);
        if (length + more >= sizeof name || sfp__names_find(&t->names, name, length + more) >= 0)
            return sfp__fail(err, SFP_EFORMAT, "%s:%llu: name is listed twice, expected different names", t->path,
                             (unsigned long long)number);
        length += more;
    }
    sfp_status status = sfp__names_add(&t->names, name, length, &id, err);
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s:%llu", t->path, (unsigned long long)number);
}

sfp_status sfp__tar_labels_read(sfp__tar_labels *t, bool wanted, sfp_error *err)
{
    OWNED_BY(sfp__lines_done) sfp__lines l = {0};
    sfp_status status = sfp__lines_open(t->path, "one name per line", &l, err);
    if (status)
        return status == SFP_ENOTFOUND && !wanted ? SFP_OK : status;
    for (char *line;;) {
        TRY(sfp__lines_next(&l, &line, err));
        if (!line)
            break;
        if (*line)
            TRY(add_listed(t, line, strlen(line), l.number, err));
    }
    if (l.number == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file is empty", t->path);
    t->listed = t->names.count > 0;
    return SFP_OK;
}

sfp_status sfp__tar_class_of(sfp__tar_labels *t, const char *label, int32_t *out, sfp_error *err)
{
    size_t n = strlen(label);
    *out = -1;
    if (n == 0)
        return SFP_OK;
    if (!t->listed)
        return sfp__names_add(&t->names, label, n, out, err);
    if (label[strspn(label, "0123456789")] == '\0') {
        long k = n > 9 ? SFP__CLASSES_MAX : strtol(label, NULL, 10);
        if (k >= t->names.count)
            return sfp__fail(err, SFP_EFORMAT, "label is %s, expected 0..%d as in %s", label, t->names.count - 1, t->path);
        *out = (int32_t)k;
        return SFP_OK;
    }
    *out = sfp__names_find(&t->names, label, n);
    char text[SFP__NAME_MAX];
    if (*out < 0)
        return sfp__fail(err, SFP_EFORMAT, "label '%s' is not in %s", sfp__printable(label, text, sizeof text), t->path);
    return SFP_OK;
}

/* ------------------------------------------------------------------ entries */

const char *sfp__tar_entry_name(struct archive_entry *e)
{
    const char *name = archive_entry_pathname(e);
    if (!name)
        name = archive_entry_pathname_utf8(e); /* for names beyond ASCII in the C locale */
    if (!name || archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e) || archive_entry_sparse_count(e) > 0)
        return NULL;
    return strlen(name) <= SFP__PATH_BYTES_MAX && (sfp__image_name(name) || label_kind_of(name) != SFP__TAR_UNLABELLED) ? name
                                                                                                                        : NULL;
}

sfp_status sfp__tar_fail(struct archive *a, const char *file, sfp_error *err)
{
    char text[SFP__NAME_MAX];
    const char *why = archive_error_string(a);
    int64_t at = archive_filter_bytes(a, 0); /* the position of the header is lost after a fatal error */
    return sfp__fail(err, archive_errno(a) == ENOMEM ? SFP_ENOMEM : SFP_EFORMAT, "%s: at byte %lld: %s", file,
                     at > 0 ? (long long)at : 0LL, why ? sfp__printable(why, text, sizeof text) : "not a tar file");
}

sfp_status sfp__tar_read_entry(struct archive *a, const char *file, const char *name, int64_t size, uint8_t *bytes,
                               sfp_error *err)
{
    char text[SFP__NAME_MAX];
    for (int64_t done = 0; done < size;) {
        la_ssize_t n = archive_read_data(a, bytes + done, (size_t)(size - done));
        if (n < 0)
            return sfp__tar_fail(a, file, err);
        if (n == 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: %s: archive ends after %lld of %lld bytes (the entry begins at byte %lld)",
                             file, sfp__printable(name, text, sizeof text), (long long)done, (long long)size,
                             (long long)archive_read_header_position(a));
        done += n;
    }
    return SFP_OK;
}

sfp_status sfp__tar_read_label(struct archive *a, const char *file, const char *name, int64_t size, sfp__tar_sample *s,
                               sfp_error *err)
{
    int kind = label_kind_of(name);
    char text[SFP__NAME_MAX], bytes[LABEL_BYTES_MAX];
    if (kind >= s->label_kind || size <= 0)
        return SFP_OK;
    if (size > LABEL_BYTES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: %s: label has %lld bytes, expected at most %d", file,
                         sfp__printable(name, text, sizeof text), (long long)size, LABEL_BYTES_MAX);
    TRY(sfp__tar_read_entry(a, file, name, size, (uint8_t *)bytes, err));
    sfp_status status = set_label(s, kind, bytes, (size_t)size, err);
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s: %s", file, sfp__printable(name, text, sizeof text));
}

sfp_status sfp__tar_check_image(const char *file, const char *name, int64_t size, sfp_error *err)
{
    char text[SFP__NAME_MAX];
    if (size < 0 || size > (int64_t)SFP__RAW_IMAGE_BYTES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: %s: image has %lld bytes, expected at most %zu", file,
                         sfp__printable(name, text, sizeof text), (long long)size, SFP__RAW_IMAGE_BYTES_MAX);
    return SFP_OK;
}

struct archive *sfp__tar_new_archive(void)
{
    struct archive *a = archive_read_new();
    if (a && archive_read_support_format_tar(a) != ARCHIVE_OK) {
        archive_read_free(a);
        a = NULL;
    }
    if (a) { /* only filters inside the library; none that starts a program */
        (void)archive_read_support_filter_gzip(a);
        (void)archive_read_support_filter_bzip2(a);
        (void)archive_read_support_filter_xz(a);
        (void)archive_read_support_filter_zstd(a);
    }
    return a;
}

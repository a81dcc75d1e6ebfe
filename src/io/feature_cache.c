#include "io/feature_cache.h"

#include "base/text.h"
#include "io/directory.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#define SUFFIX ".features"

enum {
    VERSION = 1,
    SEGMENTS_MAX = 256, /* open at the same time; further ones are not read */
    MEASURE_BYTES = 1 << 24,
    READ_BYTES = 1 << 18 /* per read while the keys are collected */
};

typedef struct header {
    char magic[8];
    uint32_t version, width;
    sfp__digest context;
    uint32_t record_bytes, crc;
} header;
_Static_assert(sizeof(header) == 40, "the format has no padding");

typedef struct record_head {
    sfp__digest key;
    uint32_t kind, crc;
} record_head;
_Static_assert(sizeof(record_head) == 24, "the format has no padding");

typedef struct segment {
    int fd;
    bool writable;
} segment;

typedef struct entry {
    sfp__digest key;
    uint32_t kind;
    uint16_t segment;
    bool used, damaged;
    uint64_t offset;
} entry;

struct sfp__feature_cache {
    char directory[PATH_MAX];
    uint64_t max_bytes;
    header like; /* the header of its segments */
    segment segments[SEGMENTS_MAX];
    int count;
    pthread_mutex_t lock; /* protects everything below; segments are only added at the end */
    entry *slot;          /* (slots) open addressing */
    size_t slots;         /* a power of two */
    int own;              /* the segment to which records are appended; -1: none yet */
    uint64_t end;         /* its size */
    uint64_t until_check; /* bytes that may be added before the directory is measured again */
    sfp__feature_cache_stats stats;
};

static uint32_t checksum(uint32_t kind, const sfp__digest *key, int width, const float *value)
{
    unsigned long sum = crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)key, sizeof *key);
    sum = crc32_z(sum, (const unsigned char *)&kind, sizeof kind);
    return (uint32_t)crc32_z(sum, (const unsigned char *)value, (size_t)width * sizeof *value);
}

static header make_header(const sfp__feature_cache_options *o)
{
    header h = {.magic = {'s', 'f', 'p', 'f', 'e', 'a', 't', 's'},
                .version = VERSION,
                .width = (uint32_t)o->width,
                .context = o->context,
                .record_bytes = (uint32_t)(sizeof(record_head) + (size_t)o->width * sizeof(float))};
    h.crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)&h, offsetof(header, crc));
    return h;
}

/* -------------------------------------------------------------------- index */

static entry *find(const sfp__feature_cache *c, uint32_t kind, const sfp__digest *key)
{
    for (size_t i = (size_t)key->word[0] & (c->slots - 1);; i = (i + 1) & (c->slots - 1))
        if (!c->slot[i].used || (c->slot[i].kind == kind && sfp__digest_equal(&c->slot[i].key, key)))
            return &c->slot[i];
}

static bool grow(sfp__feature_cache *c)
{
    size_t slots = c->slots ? 2 * c->slots : 1024;
    entry *old = c->slot, *slot = sfp__calloc(slots, sizeof *slot);
    size_t count = c->slots;
    if (!slot)
        return false;
    c->slot = slot;
    c->slots = slots;
    for (size_t i = 0; i < count; i++)
        if (old[i].used)
            *find(c, old[i].kind, &old[i].key) = old[i];
    sfp__free(old);
    return true;
}

/* Adds a record to the index; the first record of a key stays. */
static bool add_entry(sfp__feature_cache *c, const record_head *r, int seg, uint64_t offset)
{
    if (2 * (c->stats.entries + 1) > c->slots && !grow(c))
        return false;
    entry *e = find(c, r->kind, &r->key);
    if (e->used)
        return true;
    *e = (entry){.key = r->key, .kind = r->kind, .segment = (uint16_t)seg, .used = true, .offset = offset};
    c->stats.entries++;
    return true;
}

/* ------------------------------------------------------------------ opening */

/* Reads the keys of a segment. An incomplete last record is ignored. */
static sfp_status read_keys(sfp__feature_cache *c, int seg, uint8_t *buf, sfp_error *err)
{
    size_t bytes = c->like.record_bytes, per_read = READ_BYTES / bytes ? READ_BYTES / bytes * bytes : sizeof(record_head);
    bool whole = per_read >= bytes; /* else only the head of each record is read */
    uint64_t offset = sizeof(header);
    for (;;) {
        int64_t got = sfp__fd_read_at(c->segments[seg].fd, buf, per_read, (int64_t)offset);
        size_t n = whole ? (got > 0 ? (size_t)got / bytes : 0) : got == (int64_t)sizeof(record_head);
        for (size_t i = 0; i < n; i++) {
            record_head r;
            memcpy(&r, buf + i * bytes, sizeof r);
            TRY(sfp__check_memory(add_entry(c, &r, seg, offset + i * bytes), err));
        }
        if (n == 0)
            return SFP_OK; /* a file that cannot be read has no further records */
        offset += n * bytes;
    }
}

static bool is_segment_name(const char *name)
{
    size_t n = strlen(name), suffix = strlen(SUFFIX);
    return n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

/* Opens a file of the directory if it is a segment with the context and width of the cache. */
static sfp_status open_segment(sfp__feature_cache *c, int directory, const char *name, uint8_t *buf, sfp_error *err)
{
    header h = {0};
    bool writable = true;
    OWNED_BY(sfp__fd_close) int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) {
        fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        writable = false;
    }
    if (fd < 0 && errno == ENOENT) /* removed meanwhile */
        return SFP_OK;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        c->stats.ignored++;
        return SFP_OK;
    }
    int64_t got = sfp__fd_read_at(fd, &h, sizeof h, 0);
    if (got >= 0 && got < (int64_t)sizeof h)
        return SFP_OK; /* a process was killed before it had written the header, or writes it now */
    if (got < 0 || memcmp(h.magic, c->like.magic, sizeof h.magic) != 0 || h.version != VERSION ||
        h.crc != (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)&h, offsetof(header, crc))) {
        c->stats.ignored++;
        return SFP_OK;
    }
    if (memcmp(&h, &c->like, sizeof h) != 0 || c->count == SEGMENTS_MAX) /* of another backbone or other settings */
        return SFP_OK;
    c->segments[c->count++] = (segment){.fd = fd, .writable = writable};
    fd = -1;
    return read_keys(c, c->count - 1, buf, err);
}

typedef struct listing {
    DIR *dir;
} listing;

static void close_listing(const listing *l)
{
    if (l->dir)
        (void)closedir(l->dir);
}

static sfp_status open_listing(const char *path, listing *out, sfp_error *err)
{
    out->dir = opendir(path);
    return out->dir ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot open the cache directory", path);
}

static sfp_status open_segments(sfp__feature_cache *c, sfp_error *err)
{
    OWNED_BY(close_listing) listing l = {0};
    OWNED uint8_t *buf = NULL;
    TRY(open_listing(c->directory, &l, err));
    TRY(sfp__alloc(&buf, READ_BYTES, 1, err));
    for (const struct dirent *e; (e = readdir(l.dir));) // NOLINT(concurrency-mt-unsafe): the stream belongs to this function
        if (is_segment_name(e->d_name))
            TRY(open_segment(c, dirfd(l.dir), e->d_name, buf, err));
    return SFP_OK;
}

sfp_status sfp__feature_cache_open(const sfp__feature_cache_options *o, sfp__feature_cache **out, sfp_error *err)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = NULL;
    int made;
    struct stat st;
    if (o->width < 1 || o->width > 1 << 20)
        return sfp__fail(err, SFP_EINVAL, "%s: width of the cache is %d, expected 1 to %d", o->directory, o->width, 1 << 20);
    if (stat(o->directory, &st) == 0 && !S_ISDIR(st.st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: not a directory, expected the directory of a cache", o->directory);
    TRY(sfp__directory_create(o->directory, &made, err));
    TRY(sfp__alloc(&c, 1, sizeof *c, err));
    pthread_mutex_init(&c->lock, NULL);
    TRY(sfp__path_print(c->directory, sizeof c->directory, err, "%s", o->directory));
    c->max_bytes = o->max_bytes;
    c->like = make_header(o);
    c->own = -1;
    TRY(sfp__check_memory(grow(c), err));
    TRY(open_segments(c, err));
    *out = TAKE(c);
    return SFP_OK;
}

void sfp__feature_cache_close(sfp__feature_cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->count; i++)
        (void)close(c->segments[i].fd); /* this also unlocks it */
    pthread_mutex_destroy(&c->lock);
    sfp__free(c->slot);
    sfp__free(c);
}

/* ------------------------------------------------------------------ reading */

bool sfp__feature_cache_get(sfp__feature_cache *c, uint32_t kind, const sfp__digest *key, float *value)
{
    record_head r;
    size_t bytes = c->like.width * sizeof *value;
    pthread_mutex_lock(&c->lock);
    entry found = *find(c, kind, key);
    int fd = found.used && !found.damaged ? c->segments[found.segment].fd : -1;
    pthread_mutex_unlock(&c->lock);
    if (fd < 0)
        return false;
    const struct iovec parts[] = {{&r, sizeof r}, {value, bytes}};
    if (preadv(fd, parts, 2, (off_t)found.offset) == (ssize_t)(sizeof r + bytes) && r.kind == kind &&
        sfp__digest_equal(&r.key, key) && r.crc == checksum(kind, key, (int)c->like.width, value))
        return true;
    pthread_mutex_lock(&c->lock);
    find(c, kind, key)->damaged = true;
    c->stats.damaged++;
    pthread_mutex_unlock(&c->lock);
    return false;
}

/* ------------------------------------------------------------------- adding */

static void stop_adding(sfp__feature_cache *c, const char *what)
{
    (void)snprintf(c->stats.problem, sizeof c->stats.problem, "%.400s: %s: %m", c->directory, what);
}

/* Measures all segments of the directory, those of other contexts, too. */
static uint64_t measure_directory(const sfp__feature_cache *c)
{
    OWNED_BY(close_listing) listing l = {.dir = opendir(c->directory)};
    uint64_t sum = 0;
    struct stat st;
    for (const struct dirent *e; l.dir && (e = readdir(l.dir));) // NOLINT(concurrency-mt-unsafe)
        if (is_segment_name(e->d_name) && fstatat(dirfd(l.dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            sum += (uint64_t)st.st_size;
    return sum;
}

/* Returns whether `bytes` more fit into the directory. */
static bool fits(sfp__feature_cache *c, uint64_t bytes)
{
    if (c->until_check >= bytes) {
        c->until_check -= bytes;
        return true;
    }
    uint64_t used = measure_directory(c), left = c->max_bytes > used ? c->max_bytes - used : 0;
    if (left < bytes) {
        c->stats.full = true;
        return false;
    }
    uint64_t share = left / 8; /* other processes may add at the same time */
    c->until_check = share > MEASURE_BYTES ? MEASURE_BYTES : share;
    return true;
}

/* Finds a segment to append to: one that no other process has locked, else a new one. */
static bool choose_segment(sfp__feature_cache *c)
{
    struct stat st;
    for (int i = 0; i < c->count; i++) {
        const segment *s = &c->segments[i];
        if (!s->writable || flock(s->fd, LOCK_EX | LOCK_NB) != 0)
            continue;
        if (fstat(s->fd, &st) == 0 && st.st_nlink > 0 && (uint64_t)st.st_size >= sizeof(header)) {
            uint64_t records = ((uint64_t)st.st_size - sizeof(header)) / c->like.record_bytes;
            c->own = i;
            c->end = sizeof(header) + records * c->like.record_bytes; /* an incomplete record is overwritten */
            return true;
        }
        (void)flock(s->fd, LOCK_UN);
    }
    if (c->count == SEGMENTS_MAX)
        return false;
    for (int i = 0; i < 10000; i++) {
        char path[PATH_MAX];
        if (sfp__path_print(path, sizeof path, NULL, "%s/%ld-%d" SUFFIX, c->directory, (long)getpid(), i))
            return false;
        int fd = (int)TEMP_FAILURE_RETRY(open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666));
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return false;
        (void)flock(fd, LOCK_EX | LOCK_NB);
        c->segments[c->count] = (segment){.fd = fd, .writable = true};
        c->own = c->count++;
        c->end = sizeof(header);
        return TEMP_FAILURE_RETRY(pwrite(fd, &c->like, sizeof c->like, 0)) == (ssize_t)sizeof c->like;
    }
    return false;
}

static bool write_record(const sfp__feature_cache *c, int seg, uint64_t offset, const record_head *r, const float *value)
{
    size_t bytes = c->like.width * sizeof *value;
    const struct iovec parts[] = {{(void *)r, sizeof *r}, {(void *)value, bytes}};
    return TEMP_FAILURE_RETRY(pwritev(c->segments[seg].fd, parts, 2, (off_t)offset)) == (ssize_t)(sizeof *r + bytes);
}

static void append(sfp__feature_cache *c, const record_head *r, const float *value)
{
    if (!fits(c, c->like.record_bytes))
        return;
    if (c->own < 0 && !choose_segment(c)) {
        stop_adding(c, "cannot write to the cache");
        return;
    }
    if (!write_record(c, c->own, c->end, r, value)) {
        stop_adding(c, "cannot write to the cache");
        return;
    }
    if (add_entry(c, r, c->own, c->end))
        c->stats.added++;
    c->end += c->like.record_bytes;
}

void sfp__feature_cache_put(sfp__feature_cache *c, uint32_t kind, const sfp__digest *key, const float *value)
{
    const record_head r = {.key = *key, .kind = kind, .crc = checksum(kind, key, (int)c->like.width, value)};
    pthread_mutex_lock(&c->lock);
    entry *e = find(c, kind, key);
    if (!e->used && !c->stats.full && !c->stats.problem[0])
        append(c, &r, value);
    /* Every process would write the same bytes, so a damaged record can be replaced without a lock on its segment. */
    else if (e->used && e->damaged && c->segments[e->segment].writable && write_record(c, e->segment, e->offset, &r, value))
        e->damaged = false;
    pthread_mutex_unlock(&c->lock);
}

sfp__feature_cache_stats sfp__feature_cache_get_stats(sfp__feature_cache *c)
{
    pthread_mutex_lock(&c->lock);
    sfp__feature_cache_stats stats = c->stats;
    pthread_mutex_unlock(&c->lock);
    return stats;
}

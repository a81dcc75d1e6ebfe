/* streamfp data describe: describes a dataset.
 *
 * Counts cover all records. Image sizes and unreadable images are those of an evenly spread sample, because decoding a large
 * dataset takes too long. Everything is read before the first line is printed. */
#include "cli/command.h"

#include "cli/commands/data.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "io/image/image.h"
#include "stream/source.h"
#include "stream/tasks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE 200
#define BROKEN_SHOWN 5
#define NAME_WIDTH_MAX 40 /* columns of a name */
#define CHECK_SIDE 8      /* any side: only to check that an image can be cropped and resized */

/* A contact sheet has one row per class with `across` evenly spread images of the class. Blocks of rows are placed side by side,
 * with a wider gap after every fifth row, which helps counting. */
typedef struct sfp__sheet {
    int rows;   /* one per class, and a last one for unlabelled images if there are any */
    int across; /* images per class */
    int broken; /* number of cells that are red, because their image cannot be read */
} sfp__sheet;

typedef struct span {
    int min, median, max; /* 0: no image */
} span;

typedef struct description {
    const char *spec;
    bool test;
    sfp_source *source;
    sfp__tasks tasks;
    int64_t *class_count;         /* (classes + 1) images per class; the last one: unlabelled */
    int64_t *domain_count;        /* (domains + 1) images per domain; the last one: without a domain */
    double first_time, last_time; /* NAN: no times */
    int sampled, broken;
    span width, height;
    char why[BROKEN_SHOWN][SFP_ERROR_MAX];
    const char *sheet_path; /* NULL: no sheet */
    sfp__sheet sheet;
} description;

/* ---------------------------------------------------------------- contact sheet */

/* The sheet contains no text: the printed table gives the row of each class. */
#define SHEET_CLASSES_MAX 1000
#define SIDE 64
#define GAP 2
#define BIG_GAP 10
#define ROWS 25 /* per block */
#define GAP_EVERY 5

static int block_count(const sfp__sheet *sheet)
{
    return (sheet->rows + ROWS - 1) / ROWS;
}

static void row_position(const sfp__sheet *sheet, int r, int *x, int *y)
{
    int row = r % ROWS;
    *x = BIG_GAP + r / ROWS * (sheet->across * (SIDE + GAP) + BIG_GAP);
    *y = BIG_GAP + row * (SIDE + GAP) + row / GAP_EVERY * (BIG_GAP - GAP);
}

static const char *row_text(const sfp__sheet *sheet, int r, char *buf, size_t size)
{
    if (r >= sheet->rows)
        (void)snprintf(buf, size, "-");
    else if (block_count(sheet) == 1)
        (void)snprintf(buf, size, "row %d", r + 1);
    else
        (void)snprintf(buf, size, "block %d row %d", r / ROWS + 1, r % ROWS + 1);
    return buf;
}

static sfp_status create_sheet_image(const sfp__sheet *sheet, sfp__image *out, sfp_error *err)
{
    int x, y, last = sheet->rows < ROWS ? sheet->rows - 1 : ROWS - 1;
    row_position(sheet, (block_count(sheet) - 1) * ROWS + last, &x, &y);
    sfp__image im = {.width = x + sheet->across * (SIDE + GAP) + BIG_GAP, .height = y + SIDE + BIG_GAP};
    size_t bytes = (size_t)im.width * (size_t)im.height * 3;
    im.rgb = sfp__malloc(bytes);
    TRY(sfp__check_memory(im.rgb, err));
    memset(im.rgb, 255, bytes);
    *out = im;
    return SFP_OK;
}

/* Copies rgb (SIDE, SIDE, 3) to (x, y); NULL: fills the cell with red */
static void paste(sfp__image *im, int x, int y, const uint8_t *rgb)
{
    static const uint8_t red[3] = {200, 40, 40};
    for (int v = 0; v < SIDE; v++) {
        uint8_t *to = im->rgb + ((size_t)(y + v) * (size_t)im->width + (size_t)x) * 3;
        for (int i = 0; i < 3 * SIDE; i++)
            to[i] = rgb ? rgb[v * 3 * SIDE + i] : red[i % 3];
    }
}

/* true: image j of the n images of a class is one of `across` evenly spread ones; *place is its column. */
static bool is_shown(int64_t j, int64_t n, int across, int *column)
{
    int64_t m = n < across ? n : across, t = (j * m + n - 1) / n;
    *column = (int)t;
    return t < m && t * n / m == j;
}

static sfp_status fill_sheet(const sfp_source *s, const int64_t *count_of, int64_t *seen, sfp__sheet *sheet, sfp__image *im,
                             sfp_error *err)
{
    uint8_t rgb[3 * SIDE * SIDE];
    OWNED_BY(sfp__progress_done) sfp__progress progress;
    sfp__progress_init(&progress, "images", (uint64_t)s->count);
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        int column, x, y;
        TRY(sfp__source_record(s, i, &r, err));
        int row = r.label < 0 ? s->classes : r.label;
        if (!is_shown(seen[row]++, count_of[row], sheet->across, &column) || row >= sheet->rows)
            continue;
        sfp_error why = {0};
        bool broken = sfp__raw_image_read_fit(s, i, SIDE, SFP__RESIZE_CROP, rgb, &why) != SFP_OK;
        if (broken && sfp__is_machine_error(why.status))
            return sfp__fail(err, why.status, "%s", why.message);
        sheet->broken += broken;
        row_position(sheet, row, &x, &y);
        paste(im, x + column * (SIDE + GAP), y, broken ? NULL : rgb);
        sfp__progress_update(&progress, (uint64_t)i);
    }
    return SFP_OK;
}

/* count_of (classes + 1): images per class; the last one: unlabelled. */
static sfp_status write_sheet(const sfp_source *s, const int64_t *count_of, const char *path, sfp__sheet *out, sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp__image im = {0};
    OWNED int64_t *seen = NULL;
    sfp__sheet sheet = {.rows = s->classes + (count_of[s->classes] > 0)};
    sheet.rows = sheet.rows < SHEET_CLASSES_MAX ? sheet.rows : SHEET_CLASSES_MAX;
    sheet.across = sheet.rows <= ROWS ? 8 : 4;
    if (s->row_dim)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: the source has features, expected images for --sheet", s->kind->name, s->path);
    if (sheet.rows == 0)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: dataset has no images, expected some for --sheet", s->kind->name, s->path);
    TRY(sfp__alloc(&seen, (size_t)s->classes + 1, sizeof *seen, err));
    TRY(create_sheet_image(&sheet, &im, err));
    TRY(fill_sheet(s, count_of, seen, &sheet, &im, err));
    TRY(sfp__image_write_png(path, &im, err));
    *out = sheet;
    return SFP_OK;
}

/* -------------------------------------------------------------------- reading */

static sfp_status count_records(description *d, sfp_error *err)
{
    const sfp_source *s = d->source;
    d->first_time = d->last_time = NAN;
    TRY(sfp__alloc(&d->class_count, (size_t)s->classes + 1, sizeof *d->class_count, err));
    TRY(sfp__alloc(&d->domain_count, (size_t)s->domains + 1, sizeof *d->domain_count, err));
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        TRY(sfp__source_record(s, i, &r, err));
        d->class_count[r.label < 0 ? s->classes : r.label]++;
        d->domain_count[r.domain < 0 ? s->domains : r.domain]++;
        d->first_time = fmin(d->first_time, r.time); /* fmin and fmax ignore NAN */
        d->last_time = fmax(d->last_time, r.time);
    }
    return SFP_OK;
}

/* Splits the source into tasks. The test part is split like its training part. */
static sfp_status split_into_tasks(description *d, const char *spec, sfp_error *err)
{
    OWNED_PTR(sfp__source_close) sfp_source *train = NULL;
    OWNED_BY(sfp__tasks_done) sfp__tasks like = {0};
    sfp_error why = {0};
    if (d->test && sfp__source_open(d->spec, NULL, &train, &why) != SFP_OK)
        sfp__warn("the training part cannot be opened (%s); the tasks are those of the test part alone", why.message);
    if (!train)
        return sfp__tasks_create(d->source, spec, NULL, NULL, &d->tasks, err);
    TRY(sfp__tasks_create(train, spec, NULL, NULL, &like, err));
    return sfp__tasks_create_test(d->source, train, &like, spec, 0, &d->tasks, err);
}

static sfp_status measure_image(const sfp_source *s, int64_t i, int *width, int *height, sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    OWNED_BY(sfp__image_done) sfp__image im = {0};
    char where[512];
    uint8_t rgb[3 * CHECK_SIDE * CHECK_SIDE];
    TRY(sfp__source_load(s, i, &p, err));
    if (p.kind == SFP__RAW_IMAGE_ROW) {
        *width = s->row_dim;
        *height = 1;
        return SFP_OK;
    }
    (void)sfp__source_display_name(s, i, where, sizeof where);
    bool encoded = p.kind == SFP__RAW_IMAGE_ENCODED;
    if (encoded)
        TRY(sfp__image_decode(where, p.bytes, p.size, NULL, &im, err));
    if (!encoded || p.has_box)
        TRY(sfp__raw_image_fit(&p, where, CHECK_SIDE, SFP__RESIZE_SQUASH, rgb, err));
    *width = encoded ? im.width : p.width;
    *height = encoded ? im.height : p.height;
    return SFP_OK;
}

static int compare_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static span span_of(int *x, int n)
{
    if (n == 0)
        return (span){0};
    qsort(x, (size_t)n, sizeof *x, compare_ints);
    return (span){x[0], x[n / 2], x[n - 1]};
}

static sfp_status sample_images(description *d, sfp_error *err)
{
    const sfp_source *s = d->source;
    int width[SAMPLE], height[SAMPLE], good = 0;
    OWNED_BY(sfp__progress_done) sfp__progress progress;
    d->sampled = s->count < SAMPLE ? (int)s->count : SAMPLE;
    sfp__progress_init(&progress, "images", (uint64_t)d->sampled);
    for (int k = 0; k < d->sampled; k++) {
        sfp_error why = {0};
        sfp_status status =
            sfp__source_settle(s, measure_image(s, k * s->count / d->sampled, &width[good], &height[good], &why), &why);
        if (sfp__is_machine_error(status))
            return sfp__fail(err, status, "%s", why.message);
        if (status == SFP_OK)
            good++;
        else if (d->broken++ < BROKEN_SHOWN)
            memcpy(d->why[d->broken - 1], why.message, sizeof why.message);
        sfp__progress_update(&progress, (uint64_t)k + 1);
    }
    d->width = span_of(width, good);
    d->height = span_of(height, good);
    return SFP_OK;
}

static sfp_status describe(description *d, const char *tasks, sfp_error *err)
{
    sfp__source_options opt = {.test = d->test, .seed = 1};
    TRY(sfp__source_open(d->spec, &opt, &d->source, err));
    if (d->source->count < 0 || !d->source->ops->record || !d->source->ops->load)
        return sfp__fail_key(err, "data", SFP_EINVAL,
                             "data '%s': the source is live or endless, expected a dataset of known length", d->spec);
    if (d->test && !d->source->test_part)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data '%s': kind %s has no test part, expected no --part test", d->spec,
                             d->source->kind->name);
    TRY(split_into_tasks(d, tasks, err)); /* also checks labels and domains, which counting relies on */
    TRY(count_records(d, err));
    TRY(sample_images(d, err));
    return d->sheet_path ? write_sheet(d->source, d->class_count, d->sheet_path, &d->sheet, err) : SFP_OK;
}

static void description_done(description *d)
{
    sfp__tasks_done(&d->tasks);
    sfp__source_close(d->source);
    sfp__free(d->class_count);
    sfp__free(d->domain_count);
}

/* --------------------------------------------------------------------- output */

/* Returns the width of the longest name: at least min_width, at most NAME_WIDTH_MAX. */
static int name_width(int n, char *const *names, int min_width)
{
    int width = min_width;
    for (int i = 0; i < n; i++) {
        int length = sfp__text_width(names[i]);
        width = length > width ? length : width;
    }
    return width < NAME_WIDTH_MAX ? width : NAME_WIDTH_MAX;
}

/* Prints the table of classes or of domains, if there are any. The last row counts images without a class or domain. */
static void put_counts(sfp__out *o, const description *d, bool classes)
{
    const sfp_source *s = d->source;
    int n = classes ? s->classes : s->domains, x, y;
    char *const *names = classes ? s->class_names : s->domain_names;
    const int64_t *count = classes ? d->class_count : d->domain_count;
    int width = name_width(n, names, 12);
    bool sheet = classes && d->sheet_path, table = classes || n > 0;
    char where[48];
    if (table)
        sfp__out_printf(o, "\n%-*s  %9s%s\n", width, classes ? "class" : "domain", "images", sheet ? "  on the sheet" : "");
    sfp__json_array(&o->json, classes ? "classes" : "domains");
    for (int k = 0; k < n + (table && count[n] > 0); k++) {
        sfp__out_cell(o, k < n ? names[k] : classes ? "(unlabelled)" : "(none)", width);
        sfp__out_printf(o, "  %9" PRId64, count[k]);
        if (sheet)
            sfp__out_printf(o, "  %s", row_text(&d->sheet, k, where, sizeof where));
        sfp__out_printf(o, "\n");
        if (k == n)
            break;
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "name", names[k]);
        sfp__json_int(&o->json, "pictures", count[k]);
        if (sheet && k < d->sheet.rows) {
            row_position(&d->sheet, k, &x, &y);
            sfp__json_int(&o->json, "sheet_x", x);
            sfp__json_int(&o->json, "sheet_y", y);
        }
        sfp__json_end(&o->json);
    }
    sfp__json_end(&o->json);
}

static void put_tasks(sfp__out *o, const description *d)
{
    int width = 12;
    for (int t = 0; t < d->tasks.count; t++)
        width = name_width(1, &d->tasks.task[t].name, width);
    sfp__out_printf(o, "\n%-*s  %9s  %9s\n", width, "task", "classes", "images");
    sfp__json_array(&o->json, "tasks");
    for (const sfp__task *t = d->tasks.task; t < d->tasks.task + d->tasks.count; t++) {
        sfp__out_cell(o, t->name, width);
        sfp__out_printf(o, "  %9d  %9" PRId64 "\n", t->classes, t->count);
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "name", t->name);
        sfp__json_array(&o->json, "classes");
        for (int k = 0; k < t->classes; k++) {
            int32_t label = d->tasks.source_label[t->class_of[k]];
            if (label >= 0) /* a test part may lack classes */
                sfp__json_string(&o->json, NULL, d->source->class_names[label]);
        }
        sfp__json_end(&o->json);
        sfp__json_int(&o->json, "pictures", t->count);
        sfp__json_end(&o->json);
    }
    sfp__json_end(&o->json);
}

static void put_span(sfp__out *o, const description *d, const char *key, span x)
{
    if (d->broken < d->sampled)
        sfp__out_row(o, key, "min %d, median %d, max %d", x.min, x.median, x.max);
    sfp__json_object(&o->json, key);
    sfp__json_int(&o->json, "min", x.min);
    sfp__json_int(&o->json, "median", x.median);
    sfp__json_int(&o->json, "max", x.max);
    sfp__json_end(&o->json);
}

static void put_sample(sfp__out *o, const description *d)
{
    sfp__out_row(o, "sample", "%d image%s, evenly spread; %d damaged", d->sampled, d->sampled == 1 ? "" : "s", d->broken);
    sfp__json_int(&o->json, "sampled", d->sampled);
    sfp__json_int(&o->json, "broken", d->broken);
    sfp__json_array(&o->json, "broken_messages");
    for (int i = 0; i < d->broken && i < BROKEN_SHOWN; i++)
        sfp__json_string(&o->json, NULL, d->why[i]);
    sfp__json_end(&o->json);
    put_span(o, d, "width", d->width);
    put_span(o, d, "height", d->height);
    for (int i = 0; i < d->broken && i < BROKEN_SHOWN; i++)
        sfp__out_row(o, "damaged", "%s", d->why[i]);
    if (d->broken > BROKEN_SHOWN)
        sfp__out_row(o, "damaged", "and %d more", d->broken - BROKEN_SHOWN);
}

static void put_sheet(sfp__out *o, const description *d)
{
    char broken[48] = "";
    sfp__json_string(&o->json, "sheet", d->sheet_path);
    if (d->sheet.broken)
        (void)snprintf(broken, sizeof broken, ", %d damaged ones red", d->sheet.broken);
    if (d->sheet_path)
        sfp__out_row(o, "sheet", "%s: %d row%s, up to %d image%s each%s", d->sheet_path, d->sheet.rows,
                     d->sheet.rows == 1 ? "" : "s", d->sheet.across, d->sheet.across == 1 ? "" : "s", broken);
}

static void print_description(const description *d, bool json)
{
    const sfp_source *s = d->source;
    sfp__out o;
    sfp__out_begin(&o, json, 9);
    sfp__out_string(&o, "data", "data", d->spec);
    sfp__json_string(&o.json, "kind", s->kind->name);
    sfp__out_row(&o, "kind", "%s: %s%s", s->kind->name, s->kind->summary, d->test ? " (test part)" : "");
    sfp__json_bool(&o.json, "test", d->test);
    sfp__json_int(&o.json, "pictures", s->count);
    sfp__out_row(&o, "images", "%" PRId64 "%s", s->count, s->keeps_order ? ", order is kept" : "");
    sfp__out_row(&o, "classes", "%d", s->classes);
    sfp__out_row(&o, "domains", "%d", s->domains);
    sfp__out_row(&o, "tasks", "%d%s", d->tasks.count, d->tasks.free ? ", task-free" : "");
    sfp__json_int(&o.json, "unlabelled", d->class_count[s->classes]);
    sfp__json_int(&o.json, "skipped", (int64_t)s->skipped);
    sfp__json_string(&o.json, "note", s->warning);
    sfp__json_bool(&o.json, "keeps_order", s->keeps_order);
    sfp__json_bool(&o.json, "free", d->tasks.free);
    sfp__json_real(&o.json, "first_time", d->first_time);
    sfp__json_real(&o.json, "last_time", d->last_time);
    if (!isnan(d->first_time))
        sfp__out_row(&o, "time", "%g to %g", d->first_time, d->last_time);
    if (s->warning)
        sfp__out_row(&o, "warning", "%s", s->warning);
    put_sample(&o, d);
    put_sheet(&o, d);
    put_counts(&o, d, true);
    put_counts(&o, d, false);
    put_tasks(&o, d);
    sfp__out_end(&o);
}

sfp_status sfp__data_describe(const sfp__args *args, sfp_error *err)
{
    OWNED_BY(description_done)
    description d = {.spec = args->operands[1],
                     .test = sfp__args_choice(args, "part") == 1 || sfp__args_flag(args, "test"),
                     .sheet_path = sfp__args_string(args, "sheet")};
    sfp_status s = describe(&d, sfp__args_string(args, "tasks"), err);
    if (!s)
        print_description(&d, sfp__args_flag(args, "json"));
    /* the dataset is an operand of this command, but an option (--data) of the functions above */
    return s && strcmp(err->key, "data") == 0 ? sfp__as_usage(err) : s;
}

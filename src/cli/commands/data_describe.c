/* streamfp data describe: what a data set holds.
 *
 * Counts are of all records; sizes and broken pictures of a sample that is evenly spread over the data set, as decoding a
 * million pictures to say how large they are would help nobody. All is read before the first line is printed. */
#include "cli/command.h"

#include "cli/commands/data.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "io/image.h"
#include "io/json_write.h"
#include "stream/picture.h"
#include "stream/tasks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE 200
#define BROKEN_SHOWN 5
#define NAME_MOST 40 /* columns of a name */
#define CHECK_SIDE 8 /* to see whether a picture can be cut and resized, any side will do */

typedef struct span {
    int min, median, max; /* 0 without a picture */
} span;

typedef struct description {
    const char *spec;
    bool test;
    sfp_source *source;
    sfp_tasks tasks;
    int64_t *class_count;         /* (classes + 1), the last one unlabelled */
    int64_t *domain_count;        /* (domains + 1), the last one without a domain */
    double first_time, last_time; /* NAN: none */
    int sampled, broken;
    span width, height;
    char why[BROKEN_SHOWN][SFP_ERROR_MAX];
    const char *sheet_path; /* NULL: none */
    sfp_sheet sheet;
} description;

/* ---------------------------------------------------------------- contact sheet */

/* It needs no font: a class is found by its place, which the table of classes names. */
#define SIDE 64
#define GAP 2
#define BIG_GAP 10
#define ROWS 25 /* of a block */
#define FIFTH 5

static int blocks(const sfp_sheet *sheet)
{
    return (sheet->rows + ROWS - 1) / ROWS;
}

void sfp__sheet_place(const sfp_sheet *sheet, int r, int *x, int *y)
{
    int row = r % ROWS;
    *x = BIG_GAP + r / ROWS * (sheet->across * (SIDE + GAP) + BIG_GAP);
    *y = BIG_GAP + row * (SIDE + GAP) + row / FIFTH * (BIG_GAP - GAP);
}

const char *sfp__sheet_where(const sfp_sheet *sheet, int r, char *buf, size_t size)
{
    if (r >= sheet->rows)
        (void)snprintf(buf, size, "-");
    else if (blocks(sheet) == 1)
        (void)snprintf(buf, size, "row %d", r + 1);
    else
        (void)snprintf(buf, size, "block %d row %d", r / ROWS + 1, r % ROWS + 1);
    return buf;
}

static sfp_status blank(const sfp_sheet *sheet, sfp_image *out, sfp_error *err)
{
    int x, y, last = sheet->rows < ROWS ? sheet->rows - 1 : ROWS - 1;
    sfp__sheet_place(sheet, (blocks(sheet) - 1) * ROWS + last, &x, &y);
    sfp_image im = {.width = x + sheet->across * (SIDE + GAP) + BIG_GAP, .height = y + SIDE + BIG_GAP};
    size_t bytes = (size_t)im.width * (size_t)im.height * 3;
    im.rgb = sfp__malloc(bytes);
    if (!im.rgb)
        return sfp__fail_nomem(err);
    memset(im.rgb, 255, bytes);
    *out = im;
    return SFP_OK;
}

/* rgb (SIDE, SIDE, 3); NULL: a broken picture, red */
static void paste(sfp_image *im, int x, int y, const uint8_t *rgb)
{
    static const uint8_t red[3] = {200, 40, 40};
    for (int v = 0; v < SIDE; v++) {
        uint8_t *to = im->rgb + ((size_t)(y + v) * (size_t)im->width + (size_t)x) * 3;
        for (int i = 0; i < 3 * SIDE; i++)
            to[i] = rgb ? rgb[v * 3 * SIDE + i] : red[i % 3];
    }
}

/* Picture number j of the n of a class is shown at *place when it is one of `across` evenly spread ones. */
static bool shown(int64_t j, int64_t n, int across, int *place)
{
    int64_t m = n < across ? n : across, t = (j * m + n - 1) / n;
    *place = (int)t;
    return t < m && t * n / m == j;
}

static sfp_status fill(const sfp_source *s, const int64_t *count_of, int64_t *seen, sfp_sheet *sheet, sfp_image *im,
                       sfp_error *err)
{
    uint8_t rgb[3 * SIDE * SIDE];
    sfp_progress progress;
    sfp_status status = SFP_OK;
    sfp__progress_init(&progress, "pictures for the sheet", (uint64_t)s->count);
    for (int64_t i = 0; i < s->count && status == SFP_OK; i++) {
        sfp_record r;
        int place, x, y;
        status = s->record(s, i, &r, err);
        if (status != SFP_OK)
            break;
        int row = r.label < 0 ? s->classes : r.label;
        if (!shown(seen[row]++, count_of[row], sheet->across, &place) || row >= sheet->rows)
            continue;
        sfp_error why = {0};
        bool broken = sfp__picture_read_fit(s, i, SIDE, SFP_RESIZE_CROP, rgb, NULL, &why) != SFP_OK;
        if (broken && why.status == SFP_ENOMEM)
            status = sfp__fail(err, why.status, "%s", why.message);
        sheet->broken += broken;
        sfp__sheet_place(sheet, row, &x, &y);
        paste(im, x + place * (SIDE + GAP), y, broken ? NULL : rgb);
        sfp__progress_tell(&progress, (uint64_t)i);
    }
    sfp__progress_done(&progress);
    return status;
}

sfp_status sfp__sheet_write(const sfp_source *s, const int64_t *count_of, const char *path, sfp_sheet *out, sfp_error *err)
{
    sfp_image im = {0};
    sfp_sheet sheet = {.rows = s->classes + (count_of[s->classes] > 0)};
    sheet.rows = sheet.rows < SFP_SHEET_CLASSES_MAX ? sheet.rows : SFP_SHEET_CLASSES_MAX;
    sheet.across = sheet.rows <= ROWS ? 8 : 4;
    if (sheet.rows == 0)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: has no pictures for a sheet", s->kind->name, s->path);
    int64_t *seen = sfp__calloc((size_t)s->classes + 1, sizeof *seen);
    if (!seen)
        return sfp__fail_nomem(err);
    sfp_status status = blank(&sheet, &im, err);
    if (status == SFP_OK)
        status = fill(s, count_of, seen, &sheet, &im, err);
    if (status == SFP_OK)
        status = sfp__image_write_png(path, &im, err);
    if (status == SFP_OK)
        *out = sheet;
    sfp__image_done(&im);
    sfp__free(seen);
    return status;
}

/* -------------------------------------------------------------------- reading */

static sfp_status count_records(description *d, sfp_error *err)
{
    const sfp_source *s = d->source;
    sfp_status status = SFP_OK;
    d->first_time = d->last_time = NAN;
    d->class_count = sfp__calloc((size_t)s->classes + 1, sizeof *d->class_count);
    d->domain_count = sfp__calloc((size_t)s->domains + 1, sizeof *d->domain_count);
    if (!d->class_count || !d->domain_count)
        return sfp__fail_nomem(err);
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        if ((status = s->record(s, i, &r, err)) != SFP_OK)
            return status;
        d->class_count[r.label < 0 ? s->classes : r.label]++;
        d->domain_count[r.domain < 0 ? s->domains : r.domain]++;
        d->first_time = fmin(d->first_time, r.time); /* of a number and NAN: the number */
        d->last_time = fmax(d->last_time, r.time);
    }
    return SFP_OK;
}

/* The test part is cut as its training part is. */
static sfp_status cut(description *d, const char *spec, sfp_error *err)
{
    sfp_source *train = NULL;
    sfp_tasks like = {0};
    sfp_error why = {0};
    if (!d->test)
        return sfp__tasks_create(d->source, spec, 0, 1, NULL, &d->tasks, err);
    if (sfp__source_open(d->spec, NULL, &train, &why) != SFP_OK) {
        sfp__say("tasks are cut from the test part alone: %s", why.message);
        return sfp__tasks_create(d->source, spec, 0, 1, NULL, &d->tasks, err);
    }
    sfp_status s = sfp__tasks_create(train, spec, 0, 1, NULL, &like, err);
    if (s == SFP_OK) {
        s = sfp__tasks_create_test(d->source, train, &like, spec, 0, &d->tasks, err);
        sfp__tasks_done(&like);
    }
    sfp__source_close(train);
    return s;
}

static sfp_status measure(const sfp_source *s, int64_t i, int *width, int *height, sfp_error *err)
{
    sfp_picture p = {0};
    sfp_image im = {0};
    char where[512];
    uint8_t rgb[3 * CHECK_SIDE * CHECK_SIDE];
    sfp_status status = s->load(s, i, &p, err);
    if (status != SFP_OK)
        return status;
    (void)sfp__source_where(s, i, where, sizeof where);
    bool encoded = p.kind == SFP_PICTURE_ENCODED;
    if (encoded)
        status = sfp__image_decode(where, p.bytes, p.size, NULL, &im, err);
    if (status == SFP_OK && (!encoded || p.has_box))
        status = sfp__picture_fit(&p, where, CHECK_SIDE, SFP_RESIZE_SQUASH, rgb, err);
    if (status == SFP_OK) {
        *width = encoded ? im.width : p.width;
        *height = encoded ? im.height : p.height;
    }
    sfp__image_done(&im);
    sfp__picture_done(&p);
    return status;
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

static sfp_status sample(description *d, sfp_error *err)
{
    const sfp_source *s = d->source;
    int width[SAMPLE], height[SAMPLE], good = 0;
    sfp_progress progress;
    d->sampled = s->count < SAMPLE ? (int)s->count : SAMPLE;
    sfp__progress_init(&progress, "pictures", (uint64_t)d->sampled);
    for (int k = 0; k < d->sampled; k++) {
        sfp_error why = {0};
        sfp_status status = measure(s, k * s->count / d->sampled, &width[good], &height[good], &why);
        if (status == SFP_ENOMEM) {
            sfp__progress_done(&progress);
            return sfp__fail(err, status, "%s", why.message);
        }
        if (status == SFP_OK)
            good++;
        else if (d->broken++ < BROKEN_SHOWN)
            memcpy(d->why[d->broken - 1], why.message, sizeof why.message);
        sfp__progress_tell(&progress, (uint64_t)k + 1);
    }
    sfp__progress_done(&progress);
    d->width = span_of(width, good);
    d->height = span_of(height, good);
    return SFP_OK;
}

static sfp_status describe(description *d, const char *tasks, sfp_error *err)
{
    sfp_source_options opt = {.test = d->test, .seed = 1};
    sfp_status s = sfp__source_open(d->spec, &opt, &d->source, err);
    if (s != SFP_OK)
        return s;
    if (d->source->count < 0 || !d->source->record || !d->source->load)
        return sfp__fail_key(err, "data", SFP_EINVAL,
                             "data '%s': is live or without end, expected a data set that can be counted", d->spec);
    if (d->test && !d->source->test_part)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data '%s': kind %s has no test part, expected no --test", d->spec,
                             d->source->kind->name);
    s = cut(d, tasks, err); /* checks labels and domains, so that counting need not */
    if (s == SFP_OK)
        s = count_records(d, err);
    if (s == SFP_OK)
        s = sample(d, err);
    if (s == SFP_OK && d->sheet_path)
        s = sfp__sheet_write(d->source, d->class_count, d->sheet_path, &d->sheet, err);
    return s;
}

static void description_done(description *d)
{
    sfp__tasks_done(&d->tasks);
    sfp__source_close(d->source);
    sfp__free(d->class_count);
    sfp__free(d->domain_count);
}

/* ----------------------------------------------------------------------- text */

static void put_head(const char *label, const char *value)
{
    (void)printf("%-9s ", label);
    sfp__put_text(stdout, value, 0);
    (void)printf("\n");
}

static int name_width(int n, char *const *names, int least)
{
    for (int i = 0; i < n; i++) {
        int length = sfp__text_width(names[i]);
        least = length > least ? length : least;
    }
    return least < NAME_MOST ? least : NAME_MOST;
}

static void print_classes(const description *d)
{
    const sfp_source *s = d->source;
    int width = name_width(s->classes, s->class_names, 12);
    char where[48];
    (void)printf("\n%-*s  %9s%s\n", width, "class", "pictures", d->sheet_path ? "  on the sheet" : "");
    for (int k = 0; k <= s->classes; k++) {
        if (k == s->classes && d->class_count[k] == 0)
            break;
        sfp__put_cell(stdout, k < s->classes ? s->class_names[k] : "(unlabelled)", width);
        (void)printf("  %9" PRId64, d->class_count[k]);
        if (d->sheet_path)
            (void)printf("  %s", sfp__sheet_where(&d->sheet, k, where, sizeof where));
        (void)printf("\n");
    }
}

static void print_domains(const description *d)
{
    const sfp_source *s = d->source;
    int width = name_width(s->domains, s->domain_names, 12);
    if (s->domains == 0)
        return;
    (void)printf("\n%-*s  %9s\n", width, "domain", "pictures");
    for (int k = 0; k <= s->domains; k++) {
        if (k == s->domains && d->domain_count[k] == 0)
            break;
        sfp__put_cell(stdout, k < s->domains ? s->domain_names[k] : "(none)", width);
        (void)printf("  %9" PRId64 "\n", d->domain_count[k]);
    }
}

static void print_tasks(const description *d)
{
    int width = 12;
    for (int t = 0; t < d->tasks.count; t++)
        width = name_width(1, &d->tasks.task[t].name, width);
    (void)printf("\n%-*s  %9s  %9s\n", width, "task", "classes", "pictures");
    for (int t = 0; t < d->tasks.count; t++) {
        sfp__put_cell(stdout, d->tasks.task[t].name, width);
        (void)printf("  %9d  %9" PRId64 "\n", d->tasks.task[t].classes, d->tasks.task[t].count);
    }
}

static void print_sample(const description *d)
{
    (void)printf("sample    %d picture%s, evenly spread: %d broken\n", d->sampled, d->sampled == 1 ? "" : "s", d->broken);
    if (d->broken < d->sampled) {
        (void)printf("width     min %d, median %d, max %d\n", d->width.min, d->width.median, d->width.max);
        (void)printf("height    min %d, median %d, max %d\n", d->height.min, d->height.median, d->height.max);
    }
    for (int i = 0; i < d->broken && i < BROKEN_SHOWN; i++)
        put_head("broken", d->why[i]);
    if (d->broken > BROKEN_SHOWN)
        (void)printf("broken    and %d more\n", d->broken - BROKEN_SHOWN);
}

static void print_text(const description *d)
{
    const sfp_source *s = d->source;
    put_head("data", d->spec);
    (void)printf("kind      %s: %s%s\n", s->kind->name, s->kind->summary, d->test ? " (test part)" : "");
    (void)printf("pictures  %" PRId64 "%s\n", s->count, s->keeps_order ? ", in an order that is kept" : "");
    (void)printf("classes   %d\n", s->classes);
    (void)printf("domains   %d\n", s->domains);
    (void)printf("tasks     %d%s\n", d->tasks.count, d->tasks.free ? ", without boundaries" : "");
    if (!isnan(d->first_time))
        (void)printf("time      %g to %g\n", d->first_time, d->last_time);
    if (s->note)
        put_head("note", s->note);
    print_sample(d);
    if (d->sheet_path) {
        (void)printf("sheet     ");
        sfp__put_text(stdout, d->sheet_path, 0);
        (void)printf(": %d row%s, up to %d picture%s each", d->sheet.rows, d->sheet.rows == 1 ? "" : "s", d->sheet.across,
                     d->sheet.across == 1 ? "" : "s");
        if (d->sheet.broken)
            (void)printf(", %d broken ones red", d->sheet.broken);
        (void)printf("\n");
    }
    print_classes(d);
    print_domains(d);
    print_tasks(d);
}

/* ----------------------------------------------------------------------- json */

static void json_span(sfp_json *j, const char *key, span x)
{
    sfp__json_object(j, key);
    sfp__json_int(j, "min", x.min);
    sfp__json_int(j, "median", x.median);
    sfp__json_int(j, "max", x.max);
    sfp__json_end(j);
}

static void json_classes(sfp_json *j, const description *d)
{
    const sfp_source *s = d->source;
    sfp__json_array(j, "classes");
    for (int k = 0; k < s->classes; k++) {
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", s->class_names[k]);
        sfp__json_int(j, "pictures", d->class_count[k]);
        if (d->sheet_path && k < d->sheet.rows) {
            int x, y;
            sfp__sheet_place(&d->sheet, k, &x, &y);
            sfp__json_int(j, "sheet_x", x);
            sfp__json_int(j, "sheet_y", y);
        }
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void json_lists(sfp_json *j, const description *d)
{
    const sfp_source *s = d->source;
    json_classes(j, d);
    sfp__json_array(j, "domains");
    for (int k = 0; k < s->domains; k++) {
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", s->domain_names[k]);
        sfp__json_int(j, "pictures", d->domain_count[k]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    sfp__json_array(j, "tasks");
    for (int t = 0; t < d->tasks.count; t++) {
        const sfp_task *task = &d->tasks.task[t];
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", task->name);
        sfp__json_array(j, "classes");
        for (int k = 0; k < task->classes; k++) {
            int32_t label = d->tasks.source_label[task->class_of[k]];
            if (label >= 0) /* a test part need not have all classes */
                sfp__json_string(j, NULL, s->class_names[label]);
        }
        sfp__json_end(j);
        sfp__json_int(j, "pictures", task->count);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void print_json(const description *d)
{
    sfp_json j;
    const sfp_source *s = d->source;
    sfp__json_begin(&j, stdout);
    sfp__json_string(&j, "data", d->spec);
    sfp__json_string(&j, "kind", s->kind->name);
    sfp__json_bool(&j, "test", d->test);
    sfp__json_int(&j, "pictures", s->count);
    sfp__json_int(&j, "unlabelled", d->class_count[s->classes]);
    sfp__json_int(&j, "skipped", (int64_t)s->skipped);
    sfp__json_string(&j, "note", s->note);
    sfp__json_bool(&j, "keeps_order", s->keeps_order);
    sfp__json_bool(&j, "free", d->tasks.free);
    sfp__json_real(&j, "first_time", d->first_time);
    sfp__json_real(&j, "last_time", d->last_time);
    sfp__json_int(&j, "sampled", d->sampled);
    sfp__json_int(&j, "broken", d->broken);
    sfp__json_array(&j, "broken_messages");
    for (int i = 0; i < d->broken && i < BROKEN_SHOWN; i++)
        sfp__json_string(&j, NULL, d->why[i]);
    sfp__json_end(&j);
    json_span(&j, "width", d->width);
    json_span(&j, "height", d->height);
    sfp__json_string(&j, "sheet", d->sheet_path);
    json_lists(&j, d);
    sfp__json_end_all(&j);
}

/* As other commands do; but the data set, an option there, is an operand here. */
static int failed(const sfp_args *args, sfp_error *err)
{
    bool operand = strcmp(err->key, "data") == 0;
    return operand ? sfp__say_usage(args->command, "%s", err->message) : sfp__command_failed(args, err);
}

int sfp__data_describe(const sfp_args *args)
{
    sfp_error err = {0};
    if (args->operand_count != 2)
        return sfp__say_usage("data", "describe needs one data set, KIND:PATH");
    description *d = sfp__calloc(1, sizeof *d);
    sfp_status s = d ? SFP_OK : sfp__fail_nomem(&err);
    if (d) {
        d->spec = args->operands[1];
        d->test = sfp__args_flag(args, "test");
        d->sheet_path = sfp__args_string(args, "sheet");
        s = describe(d, sfp__args_string(args, "tasks"), &err);
        if (s == SFP_OK && sfp__args_flag(args, "json"))
            print_json(d);
        else if (s == SFP_OK)
            print_text(d);
        description_done(d);
        sfp__free(d);
    }
    return s == SFP_OK ? SFP_EXIT_OK : failed(args, &err);
}

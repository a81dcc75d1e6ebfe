/* streamfp demo: generated pictures, a tiny seeded model, nearest class means.
 *
 * Shows the engine at work with nothing to download: shapes are drawn from a seed, a ViT of random weights turns each picture
 * into a feature, the mean feature of a few labelled pictures stands for a class, and fresh pictures go to the nearest mean.
 * Random weights know nothing; what is shown is that decoding to features to classes works end to end. */
#include "cli/command.h"
#include "cli/json_out.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "io/image.h"
#include "model/vit.h"

#include <math.h>
#include <string.h>

#define SIDE 64
#define CLASSES 6
#define SHEET_COLUMNS 10 /* pictures of a class on the contact sheet */
#define SHEET_GAP 4

static const char *const class_names[CLASSES] = {"disc", "square", "triangle", "ring", "cross", "stripes"};

static const sfp_opt options[] = {
    SFP_ROW_INT("shots", "N", "10", 1, 200, "Labelled pictures of a class to learn from."),
    SFP_ROW_INT("count", "N", "20", 1, 1000, "Fresh pictures of a class to classify."),
    SFP_ROW_INT("seed", "N", "1", 0, INT64_MAX, "Seed of the pictures and of the model."),
    SFP_ROW_STRING("out", "FILE", "streamfp-demo.png", "Contact sheet to write (PNG): a row a class, wrong answers framed in red."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

/* -------------------------------------------------------------- pictures */

static float uniform(sfp_rng *r, float low, float high)
{
    return low + (high - low) * (float)sfp__rng_double(r);
}

/* Is the point (u, v), in units of the shape's radius and turned with it, inside the shape? */
static bool inside(int shape, float u, float v)
{
    float r = sqrtf(u * u + v * v);
    switch (shape) {
    case 0:
        return r < 0.9f;
    case 1:
        return fabsf(u) < 0.8f && fabsf(v) < 0.8f;
    case 2:
        return v > -0.6f && v < 1.0f - 1.7f * fabsf(u);
    case 3:
        return r < 1.0f && r > 0.6f;
    case 4:
        return (fabsf(u) < 0.28f && fabsf(v) < 1.0f) || (fabsf(v) < 0.28f && fabsf(u) < 1.0f);
    default:
        return fabsf(u) < 1.0f && fabsf(v) < 1.0f && fmodf(u + 8.0f, 0.5f) < 0.25f;
    }
}

/* A shape of class k: its colour, place, size and turn vary, so does the background; 2 x 2 points a pixel smooth the edge. */
static void draw(int k, sfp_rng r, uint8_t *rgb)
{
    static const float hue[CLASSES][3] = {{0.90f, 0.25f, 0.20f}, {0.20f, 0.70f, 0.30f}, {0.25f, 0.35f, 0.90f},
                                          {0.90f, 0.75f, 0.20f}, {0.70f, 0.30f, 0.80f}, {0.20f, 0.75f, 0.80f}};
    float front[3], back[3], shade = uniform(&r, 0.05f, 0.35f);
    for (int c = 0; c < 3; c++) {
        front[c] = fminf(1.0f, fmaxf(0.0f, hue[k][c] + uniform(&r, -0.15f, 0.15f)));
        back[c] = shade + uniform(&r, -0.04f, 0.04f);
    }
    float radius = uniform(&r, 0.26f, 0.36f) * SIDE, turn = uniform(&r, -0.4f, 0.4f);
    float cx = uniform(&r, 0.42f, 0.58f) * SIDE, cy = uniform(&r, 0.42f, 0.58f) * SIDE;
    float co = cosf(turn), si = sinf(turn);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int hits = 0;
            for (int s = 0; s < 4; s++) {
                float dx = ((float)x + 0.25f + 0.5f * (float)(s % 2) - cx) / radius;
                float dy = ((float)y + 0.25f + 0.5f * (float)(s / 2) - cy) / radius;
                hits += inside(k, co * dx + si * dy, si * dx - co * dy);
            }
            for (int c = 0; c < 3; c++) {
                float share = 0.25f * (float)hits, noise = uniform(&r, -0.03f, 0.03f);
                float v = share * front[c] + (1.0f - share) * back[c] + noise;
                rgb[(y * SIDE + x) * 3 + c] = (uint8_t)lrintf(255.0f * fminf(1.0f, fmaxf(0.0f, v)));
            }
        }
}

/* ----------------------------------------------------------------- learning */

typedef struct demo {
    uint64_t seed;
    int shots, count;
    sfp_pool *pool;
    sfp_vit *vit;
    sfp_vit_plan *plan;
    int pictures;   /* CLASSES * (shots + count), class-major, the labelled ones first */
    uint8_t *rgb;   /* (pictures, SIDE, SIDE, 3) */
    float *x;       /* (pictures, 3, SIDE, SIDE) */
    float *feature; /* (pictures, D) */
    float *mean;    /* (CLASSES, D) */
    int *answer;    /* (pictures): class given to a fresh picture, -1 for labelled ones */
    int confusion[CLASSES][CLASSES]; /* [true][given] */
    double seconds;
} demo;

static size_t picture_at(const demo *d, int k, int i)
{
    return (size_t)k * (size_t)(d->shots + d->count) + (size_t)i;
}

static void draw_one(void *ctx, int piece, int worker)
{
    demo *d = ctx;
    const sfp_vit_config *c = sfp__vit_config(d->vit);
    uint8_t *rgb = d->rgb + (size_t)piece * SIDE * SIDE * 3;
    (void)worker;
    draw(piece / (d->shots + d->count), sfp__rng_init(d->seed, (uint64_t)piece), rgb);
    sfp__vit_normalise(rgb, SIDE, c->mean, c->std, d->x + (size_t)piece * 3 * SIDE * SIDE);
}

static sfp_status set_up(demo *d, const sfp_args *args, sfp_error *err)
{
    sfp_vit_config config = {.img_size = SIDE, .patch_size = 8, .channels = 3, .dim = 96, .depth = 3, .heads = 3, .hidden = 384,
                             .ln_eps = 1e-6f, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
    d->seed = (uint64_t)sfp__args_int(args, "seed");
    d->shots = (int)sfp__args_int(args, "shots");
    d->count = (int)sfp__args_int(args, "count");
    d->pictures = CLASSES * (d->shots + d->count);
    size_t n = (size_t)d->pictures;
    sfp_status s = sfp__pool_create((int)sfp__args_int(args, "threads"), &d->pool, err);
    if (s == SFP_OK)
        s = sfp__vit_random(&config, d->seed, 0.06f, &d->vit, err);
    sfp_vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    if (s == SFP_OK)
        s = sfp__vit_plan_create(d->vit, d->pool, &plan, &d->plan, err);
    if (s != SFP_OK)
        return s;
    d->rgb = sfp__malloc(n * SIDE * SIDE * 3);
    d->x = sfp__malloc(n * SIDE * SIDE * 3 * sizeof *d->x);
    d->feature = sfp__malloc(n * (size_t)config.dim * sizeof *d->feature);
    d->mean = sfp__calloc(CLASSES * (size_t)config.dim, sizeof *d->mean);
    d->answer = sfp__malloc(n * sizeof *d->answer);
    if (!d->rgb || !d->x || !d->feature || !d->mean || !d->answer)
        return sfp__fail_nomem(err, n * SIDE * SIDE * 3 * sizeof *d->x);
    return SFP_OK;
}

static void tear_down(demo *d)
{
    sfp__vit_plan_free(d->plan);
    sfp__vit_free(d->vit);
    sfp__pool_free(d->pool);
    sfp__free(d->rgb);
    sfp__free(d->x);
    sfp__free(d->feature);
    sfp__free(d->mean);
    sfp__free(d->answer);
}

static int nearest_mean(const demo *d, const float *feature)
{
    int dim = sfp__vit_config(d->vit)->dim, best = 0;
    double best_distance = INFINITY;
    for (int k = 0; k < CLASSES; k++) {
        double distance = 0;
        for (int i = 0; i < dim; i++) {
            double v = (double)feature[i] - (double)d->mean[k * dim + i];
            distance += v * v;
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = k;
        }
    }
    return best;
}

static sfp_status learn_and_classify(demo *d, sfp_error *err)
{
    int dim = sfp__vit_config(d->vit)->dim;
    double begin = sfp__seconds();
    sfp__pool_run(d->pool, d->pictures, draw_one, d);
    sfp_vit_pass pass = {.b = d->pictures, .x = d->x, .feature = d->feature};
    sfp_status s = sfp__vit_run(d->plan, &pass, err);
    if (s != SFP_OK)
        return s;
    for (int k = 0; k < CLASSES; k++)
        for (int i = 0; i < d->shots; i++)
            for (int j = 0; j < dim; j++)
                d->mean[k * dim + j] += d->feature[picture_at(d, k, i) * (size_t)dim + (size_t)j] / (float)d->shots;
    for (int k = 0; k < CLASSES; k++)
        for (int i = 0; i < d->shots + d->count; i++) {
            size_t at = picture_at(d, k, i);
            d->answer[at] = i < d->shots ? -1 : nearest_mean(d, d->feature + at * (size_t)dim);
            if (d->answer[at] >= 0)
                d->confusion[k][d->answer[at]]++;
        }
    d->seconds = sfp__seconds() - begin;
    return SFP_OK;
}

/* ------------------------------------------------------------------- result */

static void frame(sfp_image *sheet, int left, int top, const uint8_t color[3])
{
    for (int y = top - SHEET_GAP / 2; y < top + SIDE + SHEET_GAP / 2; y++)
        for (int x = left - SHEET_GAP / 2; x < left + SIDE + SHEET_GAP / 2; x++)
            if (y < top || y >= top + SIDE || x < left || x >= left + SIDE)
                memcpy(sheet->rgb + ((size_t)y * (size_t)sheet->width + (size_t)x) * 3, color, 3);
}

static sfp_status write_sheet(const demo *d, const char *path, sfp_error *err)
{
    static const uint8_t right[3] = {60, 160, 75}, wrong[3] = {230, 40, 40};
    int columns = d->count < SHEET_COLUMNS ? d->count : SHEET_COLUMNS, pitch = SIDE + SHEET_GAP;
    sfp_image sheet = {.width = columns * pitch + SHEET_GAP, .height = CLASSES * pitch + SHEET_GAP};
    size_t bytes = (size_t)sheet.width * (size_t)sheet.height * 3;
    sheet.rgb = sfp__malloc(bytes);
    if (!sheet.rgb)
        return sfp__fail_nomem(err, bytes);
    memset(sheet.rgb, 255, bytes);
    for (int k = 0; k < CLASSES; k++)
        for (int i = 0; i < columns; i++) {
            size_t at = picture_at(d, k, d->shots + i);
            int left = SHEET_GAP + i * pitch, top = SHEET_GAP + k * pitch;
            for (int y = 0; y < SIDE; y++)
                memcpy(sheet.rgb + ((size_t)(top + y) * (size_t)sheet.width + (size_t)left) * 3,
                       d->rgb + (at * SIDE + (size_t)y) * SIDE * 3, SIDE * 3);
            frame(&sheet, left, top, d->answer[at] == k ? right : wrong);
        }
    sfp_status s = sfp__image_write_png(path, &sheet, err);
    sfp__image_done(&sheet);
    return s;
}

static int right_answers(const demo *d)
{
    int right = 0;
    for (int k = 0; k < CLASSES; k++)
        right += d->confusion[k][k];
    return right;
}

static void print_table(const demo *d, const char *out)
{
    const sfp_vit_config *c = sfp__vit_config(d->vit);
    int right = right_answers(d), total = CLASSES * d->count;
    (void)printf("The model is random and tiny: a ViT with seeded weights (D %d, depth %d, %zu parameters), not a trained one.\n"
                 "Each class is the mean feature of %d labelled pictures; fresh pictures go to the nearest mean.\n\n",
                 c->dim, c->depth, sfp__vit_parameters(d->vit), d->shots);
    (void)printf("%-10s", "");
    for (int k = 0; k < CLASSES; k++)
        (void)printf("%10s", class_names[k]);
    (void)printf("%10s\n", "right");
    for (int k = 0; k < CLASSES; k++) {
        (void)printf("%-10s", class_names[k]);
        for (int j = 0; j < CLASSES; j++)
            (void)printf("%10d", d->confusion[k][j]);
        (void)printf("%8.0f %%\n", 100.0 * d->confusion[k][k] / d->count);
    }
    (void)printf("\n%d of %d right (%.1f %%; guessing gives %.1f %%), %d pictures drawn and passed in %.2f s\n", right, total,
                 100.0 * right / total, 100.0 / CLASSES, d->pictures, d->seconds);
    (void)printf("contact sheet: %s\n\n", out);
    (void)printf("A trained backbone and learning from a stream will take the place of this demo.\n");
}

static void print_json(const demo *d, const char *out)
{
    sfp_json_out j;
    int total = CLASSES * d->count;
    sfp__json_begin(&j, stdout);
    sfp__json_string(&j, "model", "random");
    sfp__json_int(&j, "parameters", (int64_t)sfp__vit_parameters(d->vit));
    sfp__json_int(&j, "seed", (int64_t)d->seed);
    sfp__json_array(&j, "classes");
    for (int k = 0; k < CLASSES; k++)
        sfp__json_string(&j, NULL, class_names[k]);
    sfp__json_end(&j);
    sfp__json_array(&j, "confusion");
    for (int k = 0; k < CLASSES; k++) {
        sfp__json_array(&j, NULL);
        for (int i = 0; i < CLASSES; i++)
            sfp__json_int(&j, NULL, d->confusion[k][i]);
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    sfp__json_int(&j, "right", right_answers(d));
    sfp__json_int(&j, "count", total);
    sfp__json_real(&j, "accuracy", (double)right_answers(d) / total);
    sfp__json_real(&j, "seconds", d->seconds);
    sfp__json_string(&j, "contact_sheet", out);
    sfp__json_end_all(&j);
}

static int run(const sfp_args *args)
{
    demo d = {0};
    sfp_error err = {0};
    const char *out = sfp__args_string(args, "out");
    sfp_status s = set_up(&d, args, &err);
    if (s == SFP_OK)
        s = learn_and_classify(&d, &err);
    if (s == SFP_OK)
        s = write_sheet(&d, out, &err);
    if (s == SFP_OK && sfp__args_flag(args, "json"))
        print_json(&d, out);
    else if (s == SFP_OK)
        print_table(&d, out);
    tear_down(&d);
    return s == SFP_OK ? SFP_EXIT_OK : sfp__say_error(&err);
}

const sfp_command sfp__cmd_demo = {
    .name = "demo",
    .summary = "draw pictures and classify them with a tiny random model",
    .text = "Needs no files: pictures of six shapes are drawn from a seed, a ViT with random weights turns them into features, and "
            "fresh pictures go to the class with the nearest mean. Shows that the engine works, not how well a trained model does.",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};

/* Loading a backbone: valid files with the weights of a random ViT, and invalid files of every kind. */
#include "compute/pixels.h"
#include "model/vit.h"

#include "io/tensor/safetensors.h"

#include <sys/stat.h>

#include "numeric.h"
#include "temp_directory.h"
#include "test.h"
#include "vit_make.h"

enum { MAX_TENSORS = 64, CLASSES = 5 };

static char weights[96], config[96], config_of_stem[96];

static const sfp__vit_config sizes = VIT(12, 4, 24, 2, 3, 40, 0, 1, .classes = CLASSES);

/* ----------------------------------------------------------- making a file */

/* A weight file about to be written, which tests modify first. */
typedef struct checkpoint {
    sfp__vit *vit; /* owner of the weights */
    sfp__tensor tensors[MAX_TENSORS];
    char names[MAX_TENSORS][80];
    size_t count;
} checkpoint;

static void done(checkpoint *p)
{
    sfp__vit_free(p->vit);
}
DEFINE_OWNED_PTR(checkpoint, done)

static void add(checkpoint *p, const char *name, const float *data, int ndim, const int64_t *shape)
{
    assert_true(p->count < MAX_TENSORS);
    (void)snprintf(p->names[p->count], sizeof *p->names, "%s", name);
    sfp__tensor *t = &p->tensors[p->count];
    *t = (sfp__tensor){.name = p->names[p->count], .dtype = SFP__DTYPE_F32, .ndim = ndim, .data = data};
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    assert_true(sfp__shape_count(shape, ndim, SFP__DTYPE_F32, &t->count, &t->bytes));
    p->count++;
}

static checkpoint *begin(const sfp__vit_config *c)
{
    checkpoint *p = kept_calloc(1, sizeof *p);
    MUST(sfp__vit_random(c, 9, 0.2f, &p->vit, &err));
    const sfp__vit_weights *w = &p->vit->weights;
#define ADD(field, name, ndim, ...) add(p, name, w->field, ndim, (const int64_t[]){__VA_ARGS__});
    SFP__VIT_GLOBAL_LIST(ADD)
    if (c->classes) {
        SFP__VIT_HEAD_LIST(ADD)
    }
#undef ADD
    for (int l = 0; l < c->depth; l++) {
        char full[64];
#define ADD(field, name, ndim, ...)                             \
    (void)snprintf(full, sizeof full, "blocks.%d.%s", l, name); \
    add(p, full, w->blocks[l].field, ndim, (const int64_t[]){__VA_ARGS__});
        SFP__VIT_BLOCK_LIST(ADD)
#undef ADD
    }
    return p;
}

static size_t place(const checkpoint *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->names[i], name) == 0)
            return i;
    fail_msg("no tensor '%s'", name);
    return 0;
}

static void drop(checkpoint *p, const char *name)
{
    size_t i = place(p, name);
    p->count--;
    for (; i < p->count; i++) {
        p->tensors[i] = p->tensors[i + 1];
        memcpy(p->names[i], p->names[i + 1], sizeof p->names[i]);
        p->tensors[i].name = p->names[i];
    }
}

/* Gives a tensor another shape, filled with 0.5. */
static void reshape(checkpoint *p, const char *name, int ndim, const int64_t *shape)
{
    size_t i = place(p, name);
    sfp__tensor *t = &p->tensors[i];
    t->ndim = ndim;
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    assert_true(sfp__shape_count(shape, ndim, SFP__DTYPE_F32, &t->count, &t->bytes));
    t->data = filled(t->count, 0.5f);
}

static void poison(checkpoint *p, const char *name, size_t at, float value)
{
    size_t i = place(p, name);
    float *copy = copied(p->tensors[i].data, p->tensors[i].count);
    copy[at] = value;
    p->tensors[i].data = copy;
}

static void convert(checkpoint *p, const char *name, sfp__dtype to)
{
    size_t i = place(p, name);
    sfp__tensor *t = &p->tensors[i];
    const float *from = t->data;
    char *out = kept_malloc(t->count * sfp__dtype_size(to));
    for (size_t k = 0; k < t->count; k++) {
        double wide = (double)from[k];
        uint16_t half = to == SFP__DTYPE_F16 ? sfp__f32_to_f16(from[k]) : sfp__f32_to_bf16(from[k]);
        memcpy(out + k * sfp__dtype_size(to), to == SFP__DTYPE_F64 ? (void *)&wide : (void *)&half, sfp__dtype_size(to));
    }
    t->dtype = to;
    t->bytes = t->count * sfp__dtype_size(to);
    t->data = out;
}

static void write_file(const checkpoint *p)
{
    MUST(sfp__safetensors_write(weights, p->tensors, p->count, NULL, 0, &err));
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void make_paths(void)
{
    make_directory();
    (void)snprintf(weights, sizeof weights, "%s/w.safetensors", directory);
    (void)snprintf(config, sizeof config, "%s/config.json", directory);
    (void)snprintf(config_of_stem, sizeof config_of_stem, "%s/w.json", directory);
}

AROUND_EACH(make_paths, remove_directory)

static const char three_heads[] = "{\"num_heads\": 3}";

static sfp__vit *load(void)
{
    sfp__vit *v = NULL;
    MUST(sfp__vit_load(weights, NULL, &v, &err));
    return v;
}

static sfp__vit *load_with_three_heads(const checkpoint *p)
{
    write_file(p);
    write_text(config, three_heads);
    return load();
}

/* Checks that loading fails with this status. The message must contain the file name and each text (the list ends with NULL). */
static void check_refused(sfp_status status, ...)
{
    sfp__vit *v = NULL;
    sfp_status s = sfp__vit_load(weights, NULL, &v, &err);
    if (s != status)
        fail_msg("got %s ('%s'), expected %s", sfp_status_text(s), err.message, sfp_status_text(status));
    assert_null(v);
    assert_int_equal(err.status, status);
    va_list ap;
    va_start(ap, status);
    for (const char *text; (text = va_arg(ap, const char *));)
        if (!strstr(err.message, text))
            fail_msg("message is '%s', expected '%s' in it", err.message, text);
    va_end(ap);
}

/* ------------------------------------------------------------ valid files */

static void features_of(sfp__vit *v, float *feature)
{
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    sfp__rng rng = sfp__rng_init(3, 3);
    float *x = normals(&rng, 2 * 3 * 12 * 12, 1);
    const sfp__vit_plan_options opt = {0};
    const sfp__vit_pass pass = {.b = 2, .x = x, .feature = feature};
    MUST(sfp__thread_pool_create(1, &pool, &err));
    MUST(sfp__vit_plan_create(v, pool, &opt, &plan, &err));
    MUST(sfp__vit_run(plan, &pass, &err));
}

/* Checks that both compute the same features: bit by bit (error 0) or within a relative error. */
static void check_features(sfp__vit *v, sfp__vit *like, double error)
{
    float got[2 * 24], want[2 * 24];
    features_of(v, got);
    features_of(like, want);
    if (error > 0)
        check_near("features", got, want, 2 * 24, error);
    else
        check_same("features", got, want, sizeof got);
}

/* Packing again reads what remains of the file, so it would reveal a page that was freed too early. */
TEST(the_file_is_freed_where_nothing_reads_it)
{
    static const sfp__vit_config large = VIT(64, 4, 96, 2, 3, 160, 0, 1, .classes = CLASSES); /* tensors of several pages */
    OWNED_PTR(done) checkpoint *p = begin(&large);
    write_file(p);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load_with_three_heads(p), *like = load_with_three_heads(p);
    const uint8_t *bytes = (const uint8_t *)v->weights.blocks[1].qkv_w;
    size_t pos = (size_t)v->tokens * 96, middle = 3 * 96 * 96 * sizeof(float) / 2, i = 0;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    MUST(sfp__thread_pool_create(1, &pool, &err));
    MUST(sfp__vit_free_packed(v, &err));
    MUST(sfp__vit_plan_create(v, pool, &(sfp__vit_plan_options){0}, &plan, &err));
    assert_null(v->weights.blocks[1].qkv_w);
    while (i < 4096 && bytes[middle + i] == 0)
        i++;
    assert_int_equal(i, 4096); /* a page inside the tensor was returned */
    check_same("positions", v->weights.pos, like->weights.pos, pos * sizeof(float));
    check_same("head", v->weights.head_w, like->weights.head_w, (size_t)CLASSES * 96 * sizeof(float));
    MUST(sfp__vit_hold_all(v, &err));
    check_same("weights", v->weights.blocks[1].qkv_w, like->weights.blocks[1].qkv_w, 2 * middle);
    sfp__vit_unhold_all(v);
}

TEST(a_written_vit_loads_and_computes_the_same)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    write_file(p);
    write_text(config, "{\"num_heads\": 3, \"mean\": [0.1, 0.2, 0.3], \"std\": [0.5, 0.6, 0.7], \"layer_norm_eps\": 1e-6,"
                       " \"class_names\": [\"a\", \"b\", \"c\", \"d\", \"e\"]}");
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
    const sfp__vit_config *c = &v->config;
    assert_int_equal(c->img_size, 12);
    assert_int_equal(c->patch_size, 4);
    assert_int_equal(c->channels, 3);
    assert_int_equal(c->dim, 24);
    assert_int_equal(c->depth, 2);
    assert_int_equal(c->heads, 3);
    assert_int_equal(c->hidden, 40);
    assert_int_equal(c->classes, CLASSES);
    assert_int_equal(v->tokens, 10);
    assert_true(c->ln_eps == 1e-6f);
    assert_true(c->mean[0] == 0.1f && c->mean[1] == 0.2f && c->mean[2] == 0.3f);
    assert_true(c->std[0] == 0.5f && c->std[1] == 0.6f && c->std[2] == 0.7f);
    assert_non_null(c->class_names);
    assert_string_equal(c->class_names[4], "e");
    assert_int_equal(sfp__vit_parameters(v), sfp__vit_parameters(p->vit));
    assert_int_equal(sfp__vit_parameters(v),
                     24 * 48 + 24 + 24 + 10 * 24 + 2 * 24 /* outside blocks */ +
                         2 * (4 * 24 + 3 * 24 * 24 + 3 * 24 + 24 * 24 + 24 + 40 * 24 + 40 + 24 * 40 + 24));
    assert_non_null(strstr(v->recognised, "plain ViT"));
    check_features(v, p->vit, 0);
}

TEST(other_number_types_are_converted)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    const sfp__vit_weights *from = &p->vit->weights;
    convert(p, "blocks.0.attn.qkv.weight", SFP__DTYPE_F16);
    convert(p, "blocks.1.mlp.fc1.weight", SFP__DTYPE_BF16);
    convert(p, "pos_embed", SFP__DTYPE_F64);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load_with_three_heads(p);
    const sfp__vit_weights *w = &v->weights;
    for (size_t i = 0; i < 3 * 24 * 24; i++)
        assert_true(w->blocks[0].qkv_w[i] == sfp__f16_to_f32(sfp__f32_to_f16(from->blocks[0].qkv_w[i])));
    for (size_t i = 0; i < 40 * 24; i++)
        assert_true(w->blocks[1].fc1_w[i] == sfp__bf16_to_f32(sfp__f32_to_bf16(from->blocks[1].fc1_w[i])));
    check_same("pos_embed", w->pos, from->pos, 10 * 24 * sizeof(float));
    check_features(v, p->vit, 0.05);
}

TEST(the_config_named_like_the_file_precedes_config_json)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    write_file(p);
    write_text(config, "{\"num_heads\": 4}");
    write_text(config_of_stem, "{\"num_heads\": 2}");
    OWNED_PTR(sfp__vit_free) sfp__vit *by_stem = load();
    assert_int_equal(by_stem->config.heads, 2);
    assert_int_equal(unlink(config_of_stem), 0);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
    assert_int_equal(v->config.heads, 4);
}

TEST(without_a_config_heads_are_64_wide_and_normalisation_is_imagenets)
{
    sfp__vit_config c = sizes;
    c.dim = 128, c.heads = 2, c.depth = 1;
    OWNED_PTR(done) checkpoint *p = begin(&c);
    write_file(p);
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
    assert_int_equal(v->config.heads, 2);
    assert_true(v->config.ln_eps == 1e-6f);
    assert_true(v->config.mean[0] == 0.485f && v->config.std[2] == 0.225f);
    assert_null(v->config.class_names);
    c.dim = 72; /* not a multiple of 64 */
    OWNED_PTR(done) checkpoint *odd = begin(&c);
    write_file(odd);
    check_refused(SFP_EINVAL, weights, "width 72", "num_heads", "config.json", NULL);
    write_text(config, "{\"num_heads\": 5}");
    check_refused(SFP_ESHAPE, weights, "width 72", "5 heads", NULL);
    write_text(config, "{\"num_heads\": \"three\"}");
    check_refused(SFP_EFORMAT, config, "num_heads", NULL);
}

TEST(class_names_of_a_wrong_number_are_ignored)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    write_file(p);
    write_text(config, "{\"num_heads\": 3, \"class_names\": [\"a\", \"b\"]}");
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
    assert_null(v->config.class_names);
}

TEST(logits_are_the_head_of_the_features)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    const sfp__vit_weights *w = &p->vit->weights;
    sfp__rng rng = sfp__rng_init(4, 4);
    float *feature = normals(&rng, 3 * 24, 1), logits[3 * CLASSES], want[3 * CLASSES];
    MUST(sfp__vit_head(p->vit, 3, feature, logits, &err));
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < CLASSES; k++)
            want[i * CLASSES + k] = (float)(dot(feature + i * 24, w->head_w + k * 24, 24) + (double)w->head_b[k]);
    check_near("logits", logits, want, 3 * CLASSES, 1e-6);
    drop(p, "head.weight");
    drop(p, "head.bias");
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load_with_three_heads(p);
    assert_int_equal(v->config.classes, 0);
    REFUSED(sfp__vit_head(v, 3, feature, logits, &err), SFP_ENOTFOUND, weights);
    assert_non_null(strstr(err.message, "head.weight"));
}

TEST(pixels_are_normalised_channel_by_channel)
{
    enum { S = 5 };
    uint8_t rgb[S * S * 3];
    float out[3 * S * S];
    const float mean[3] = {0.5f, 0.25f, 0.1f}, std[3] = {0.5f, 2, 0.1f};
    for (int i = 0; i < S * S * 3; i++)
        rgb[i] = (uint8_t)(i * 37);
    sfp__pixels_normalise(rgb, S, mean, std, out);
    for (int ch = 0; ch < 3; ch++)
        for (int i = 0; i < S * S; i++) {
            double want = ((double)rgb[3 * i + ch] / 255 - (double)mean[ch]) / (double)std[ch];
            assert_true(fabs((double)out[ch * S * S + i] - want) <= 1e-6 * (1 + fabs(want)));
        }
}

/* ---------------------------------------------------------- other layouts */

static const sfp__vit_config clip_sizes = {.img_size = 12,
                                           .patch_size = 4,
                                           .channels = 3,
                                           .dim = 24,
                                           .depth = 2,
                                           .heads = 3,
                                           .hidden = 40,
                                           .ln_eps = 1e-5f,
                                           .quick_gelu = true,
                                           .pre_norm = true,
                                           .no_patch_bias = true,
                                           .mean = {0.1f, 0.2f, 0.3f},
                                           .std = {1, 0.5f, 0.25f}};

TEST(clips_names_shapes_and_switches_are_known)
{
    static const struct {
        const char *timm, *clip;
    } names[] = {{"norm1.", "ln_1."},
                 {"attn.qkv.weight", "attn.in_proj_weight"},
                 {"attn.qkv.bias", "attn.in_proj_bias"},
                 {"attn.proj.", "attn.out_proj."},
                 {"norm2.", "ln_2."},
                 {"mlp.fc1.", "mlp.c_fc."},
                 {"mlp.fc2.", "mlp.c_proj."}};
    OWNED_BY(done) checkpoint p = {0};
    MUST(sfp__vit_random(&clip_sizes, 9, 0.2f, &p.vit, &err));
    const sfp__vit_weights *w = &p.vit->weights;
    assert_null(w->patch_b);
    const sfp__vit_config *c = &clip_sizes;
    add(&p, "visual.conv1.weight", w->patch_w, 4, (const int64_t[]){24, 3, 4, 4});
    add(&p, "visual.class_embedding", w->cls, 1, (const int64_t[]){24});
    add(&p, "visual.positional_embedding", w->pos, 2, (const int64_t[]){10, 24});
    add(&p, "visual.ln_pre.weight", w->pre_w, 1, (const int64_t[]){24});
    add(&p, "visual.ln_pre.bias", w->pre_b, 1, (const int64_t[]){24});
    add(&p, "visual.ln_post.weight", w->norm_w, 1, (const int64_t[]){24});
    add(&p, "visual.ln_post.bias", w->norm_b, 1, (const int64_t[]){24});
    add(&p, "visual.proj", w->pos, 2, (const int64_t[]){24, 4});
    add(&p, "transformer.resblocks.5.ln_1.weight", w->norm_w, 1, (const int64_t[]){24}); /* the text tower */
    for (int l = 0; l < c->depth; l++) {
#define ADD(field, name, ndim, ...)                                                                     \
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)                                           \
        if (strncmp(name, names[k].timm, strlen(names[k].timm)) == 0) {                                 \
            char full[64];                                                                              \
            (void)snprintf(full, sizeof full, "visual.transformer.resblocks.%d.%s%s", l, names[k].clip, \
                           &(name)[strlen(names[k].timm)]);                                             \
            add(&p, full, w->blocks[l].field, ndim, (const int64_t[]){__VA_ARGS__});                    \
        }
        SFP__VIT_BLOCK_LIST(ADD)
#undef ADD
    }
    write_file(&p);
    write_text(config, "{\"vision_config\": {\"num_attention_heads\": 3}, \"text_config\": {}}");
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
    check_features(v, p.vit, 0);
    assert_int_equal(v->config.depth, 2);
    assert_true(v->config.quick_gelu && v->config.pre_norm && v->config.no_patch_bias);
    assert_true(v->config.ln_eps == 1e-5f);
    assert_non_null(strstr(v->recognised, "CLIP image tower"));
    assert_non_null(strstr(v->recognised, "under 'visual.'"));
    assert_non_null(strstr(v->ignored, "2 tensors: "));
    assert_non_null(strstr(v->ignored, "visual.proj"));
    drop(&p, "visual.transformer.resblocks.1.ln_2.bias");
    write_file(&p);
    check_refused(SFP_ENOTFOUND, weights, "visual.transformer.resblocks.1.ln_2.bias", NULL);
}

TEST(the_teacher_is_loaded_and_not_the_student)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    for (size_t i = 0; i < p->count; i++) {
        char full[64];
        (void)snprintf(full, sizeof full, "teacher.backbone.%.40s", p->names[i]);
        (void)snprintf(p->names[i], sizeof *p->names, "%s", full);
    }
    static const float patch[24 * 48];
    add(p, "student.backbone.patch_embed.proj.weight", patch, 4, (const int64_t[]){24, 3, 4, 4});
    OWNED_PTR(sfp__vit_free) sfp__vit *v = load_with_three_heads(p);
    check_features(v, p->vit, 0);
    assert_non_null(strstr(v->recognised, "under 'teacher.backbone.'"));
    assert_non_null(strstr(v->recognised, "1 more ViT in the file not used"));
}

TEST(a_saved_network_loads_as_the_same_network)
{
    const sfp__vit_config *const all[] = {&sizes, &clip_sizes};
    for (size_t i = 0; i < 2; i++) {
        OWNED_PTR(sfp__vit_free) sfp__vit *saved = NULL;
        MUST(sfp__vit_random(all[i], 9, 0.2f, &saved, &err));
        MUST(sfp__vit_save(all[i], &saved->weights, SFP__DTYPE_F32, NULL, 0, weights, &err));
        OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
        check_features(v, saved, 0);
        const sfp__vit_config *c = &v->config;
        assert_true(c->heads == 3 && c->ln_eps == all[i]->ln_eps && c->quick_gelu == all[i]->quick_gelu &&
                    c->pre_norm == all[i]->pre_norm);
        assert_memory_equal(c->mean, all[i]->mean, sizeof c->mean);
        assert_memory_equal(c->std, all[i]->std, sizeof c->std);
    }
}

TEST(changes_of_the_file_after_loading_have_no_effect)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *saved = NULL;
    MUST(sfp__vit_random(&sizes, 9, 0.2f, &saved, &err));
    for (int truncated = 0; truncated < 2; truncated++) {
        MUST(sfp__vit_save(&sizes, &saved->weights, SFP__DTYPE_F32, NULL, 0, weights, &err));
        OWNED_PTR(sfp__vit_free) sfp__vit *v = load();
        FILE *f = fopen(weights, truncated ? "w" : "r+"); /* in place: the file keeps its inode */
        assert_non_null(f);
        for (int i = 0; i < (truncated ? 0 : 100000); i++)
            (void)fputc(7, f);
        assert_int_equal(fclose(f), 0);
        check_features(v, saved, 0);
    }
}

TEST(numbers_that_do_not_fit_16_bits_are_refused_when_saving)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    MUST(sfp__vit_random(&sizes, 9, 1e5f, &v, &err));
    REFUSED(sfp__vit_save(&sizes, &v->weights, SFP__DTYPE_F16, NULL, 0, weights, &err), SFP_ELIMIT, "does not fit F16");
    assert_int_not_equal(access(weights, F_OK), 0);
}

TEST(another_input_size_resizes_the_positions)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    write_file(p);
    write_text(config, three_heads);
    const float *grid = p->vit->weights.pos;
    static const int sides[] = {6, 9, 3, 2}; /* twice, three times, the same, smaller */
    for (size_t i = 0; i < 4; i++) {
        OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
        const sfp__vit_options o = {.img_size = 4 * sides[i]};
        MUST(sfp__vit_load(weights, &o, &v, &err));
        assert_int_equal(v->config.img_size, 4 * sides[i]);
        assert_int_equal(v->tokens, 1 + sides[i] * sides[i]);
        const float *pos = v->weights.pos;
        check_same("class token", pos, grid, 24 * sizeof *pos);
        if (sides[i] == 9) /* the centre of every third cell is the centre of an old cell */
            for (int r = 0; r < 3; r++)
                for (int c = 0; c < 3; c++)
                    check_near("cell", pos + 24 * (1 + (3 * r + 1) * 9 + 3 * c + 1), grid + 24 * (1 + 3 * r + c), 24, 1e-6);
        if (sides[i] == 3)
            check_same("positions", pos, grid, 10 * 24 * sizeof *pos);
    }
    sfp__vit *v = NULL;
    REFUSED(sfp__vit_load(weights, &(sfp__vit_options){.img_size = 13}, &v, &err), SFP_EINVAL,
            "img-size is 13, expected a multiple of 4");
}

/* ------------------------------------------------------------ invalid files */

TEST(every_missing_tensor_is_named)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    write_text(config, three_heads);
    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->names[i], "head.weight") == 0)
            continue; /* without it there is no head, and head.bias is not read */
        sfp__tensor rest[MAX_TENSORS];
        size_t n = 0;
        for (size_t k = 0; k < p->count; k++)
            if (k != i)
                rest[n++] = p->tensors[k];
        MUST(sfp__safetensors_write(weights, rest, n, NULL, 0, &err));
        check_refused(SFP_ENOTFOUND, weights, p->names[i], NULL);
    }
}

TEST(every_wrong_shape_is_named_with_the_expected_one)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[4];
        const char *found, *expected;
    } wrong[] = {
        {"blocks.1.attn.qkv.weight", 2, {72, 20}, "(72, 20)", "(72, 24)"},
        {"blocks.0.attn.qkv.bias", 1, {24}, "(24,)", "(72,)"},
        {"blocks.1.mlp.fc2.weight", 2, {40, 24}, "(40, 24)", "(24, 40)"},
        {"blocks.1.mlp.fc1.weight", 2, {41, 24}, "(41, 24)", "(40, 24)"},
        {"norm.weight", 2, {1, 24}, "(1, 24)", "(24,)"},
        {"patch_embed.proj.weight", 4, {24, 3, 4, 5}, "(24, 3, 4, 5)", "(24, 3, 4, 4)"},
        {"head.bias", 1, {6}, "(6,)", "(5,)"},
        {"head.weight", 1, {24}, "(24,)", "2 dimensions"},
        {"cls_token", 2, {1, 24}, "(1, 24)", "3 dimensions"},
        {"pos_embed", 3, {1, 10, 23}, "(1, 10, 23)", "(1, 10, 24)"},
        {"pos_embed", 3, {1, 0, 24}, "(1, 0, 24)", "sizes from 1"},
    };
    write_text(config, three_heads);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_PTR(done) checkpoint *p = begin(&sizes);
        reshape(p, wrong[i].name, wrong[i].ndim, wrong[i].shape);
        write_file(p);
        check_refused(SFP_ESHAPE, weights, wrong[i].name, wrong[i].found, wrong[i].expected, NULL);
    }
}

TEST(positions_must_be_one_and_a_square)
{
    static const int64_t tokens[] = {1, 3, 9, 11};
    static const char *const text[] = {"1 tokens", "3 tokens", "9 tokens", "11 tokens"};
    write_text(config, three_heads);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        OWNED_PTR(done) checkpoint *p = begin(&sizes);
        reshape(p, "pos_embed", 3, (const int64_t[]){1, tokens[i], 24});
        write_file(p);
        check_refused(SFP_ESHAPE, weights, "pos_embed", text[i], "1 + a square", NULL);
    }
}

TEST(numbers_must_be_finite)
{
    write_text(config, three_heads);
    static const struct {
        const char *name, *what, *where;
        size_t at;
        float value;
    } wrong[] = {{"blocks.1.attn.proj.weight", "NaN", "element 17", 17, NAN},
                 {"cls_token", "infinity", "element 23", 23, -INFINITY}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_PTR(done) checkpoint *p = begin(&sizes);
        poison(p, wrong[i].name, wrong[i].at, wrong[i].value);
        write_file(p);
        check_refused(SFP_EFORMAT, weights, wrong[i].name, wrong[i].what, wrong[i].where, NULL);
    }
    OWNED_PTR(done) checkpoint *p = begin(&sizes); /* fits a double, but not a float */
    convert(p, "norm.bias", SFP__DTYPE_F64);
    memcpy((char *)(uintptr_t)p->tensors[place(p, "norm.bias")].data + 8 * 5, &(double){1e300}, 8);
    write_file(p);
    check_refused(SFP_EFORMAT, weights, "norm.bias", "element 5", NULL);
}

TEST(a_distilled_vit_is_refused_by_its_token)
{
    OWNED_PTR(done) checkpoint *p = begin(&sizes);
    add(p, "dist_token", p->vit->weights.cls, 3, (const int64_t[]){1, 1, 24});
    write_file(p);
    write_text(config, three_heads);
    check_refused(SFP_EUNSUPPORTED, weights, "dist_token", NULL);
}

TEST(too_many_blocks_are_refused)
{
    static const struct {
        const char *name, *message;
    } wrong[] = {{"blocks.64.norm1.weight", "depth is 65, expected 1 to 64"},
                 {"blocks.99999999999999999999.norm1.weight", "depth is"},
                 {"blocks.3.extra", "blocks.2.norm1.weight"}};
    write_text(config, three_heads);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OWNED_PTR(done) checkpoint *p = begin(&sizes);
        add(p, wrong[i].name, p->vit->weights.norm_w, 1, (const int64_t[]){24});
        write_file(p);
        check_refused(i < 2 ? SFP_ESHAPE : SFP_ENOTFOUND, weights, wrong[i].message, NULL);
    }
}

TEST(a_missing_file_is_named)
{
    check_refused(SFP_ENOTFOUND, weights, NULL);
}

TEST(above_load_five_the_input_has_half_of_the_patches)
{
    static const struct {
        int img_size, patch_size, half;
    } list[] = {{224, 16, 160}, {224, 14, 154}, {64, 8, 48}, {32, 8, 24}, {16, 8, 8}, {8, 8, 8}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const sfp__vit_config c = {.img_size = list[i].img_size, .patch_size = list[i].patch_size};
        assert_int_equal(sfp__vit_size_for_load(&c, 0), list[i].img_size);
        assert_int_equal(sfp__vit_size_for_load(&c, 5), list[i].img_size);
        assert_int_equal(sfp__vit_size_for_load(&c, NAN), list[i].img_size);
        assert_int_equal(sfp__vit_size_for_load(&c, 5.01), list[i].half);
        assert_int_equal(sfp__vit_size_for_load(&c, 1e9), list[i].half); /* never smaller */
    }
}

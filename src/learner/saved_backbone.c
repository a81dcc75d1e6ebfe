/* Which backbone a file belongs to. Prompts and heads mean nothing on another
 * one of the same sizes, and nothing would look wrong but the accuracy. */
#include "learner/saved.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

unsigned long sfp__saved_backbone_sum(const sfp_vit *vit)
{
    const sfp_vit_config *c = &vit->config;
    const sfp_vit_weights *w = &vit->weights;
    size_t D = (size_t)c->dim * sizeof(float), tokens = (size_t)vit->tokens;
    unsigned long sum = crc32_z(0, NULL, 0);
    const struct {
        const float *data;
        size_t bytes;
    } list[] = {{w->cls, D}, {w->pos, tokens * D}, {w->norm_w, D}, {w->norm_b, D}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].data)
            sum = crc32_z(sum, (const unsigned char *)list[i].data, list[i].bytes);
    for (int b = 0; b < c->depth; b++) {
        const float *all[] = {w->blocks[b].norm1_w, w->blocks[b].norm2_w, w->blocks[b].proj_b, w->blocks[b].fc2_b,
                              w->blocks[b].qkv_w};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i])
                sum = crc32_z(sum, (const unsigned char *)all[i], D); /* of qkv the first row */
    }
    return sum;
}

/* The file's own name: a folder may move. */
static const char *file_name(const sfp_vit *vit)
{
    const char *path = sfp__vit_path(vit), *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "random";
}

typedef struct identity {
    char file[SFP_NAME_MAX], sizes[128], sum[16];
} identity;

static identity identify(const sfp_vit *vit)
{
    const sfp_vit_config *c = &vit->config;
    identity id;
    (void)sfp__printable(file_name(vit), id.file, sizeof id.file);
    (void)snprintf(id.sizes, sizeof id.sizes, "img %d, patch %d, width %d, depth %d, heads %d, hidden %d", c->img_size,
                   c->patch_size, c->dim, c->depth, c->heads, c->hidden);
    (void)snprintf(id.sum, sizeof id.sum, "%08lx", sfp__saved_backbone_sum(vit));
    return id;
}

void sfp__saved_put_backbone(sfp_saved_meta *m, const sfp_vit *vit)
{
    identity id = identify(vit);
    sfp__saved_put(m, "backbone-file", id.file);
    sfp__saved_put(m, "backbone-sizes", id.sizes);
    sfp__saved_put(m, "backbone", id.sum);
}

int sfp__saved_img_size(const sfp_tensor_file *st)
{
    const char *sizes = sfp__tensor_file_meta(st, "backbone-sizes");
    char *end = NULL;
    if (!sizes || strncmp(sizes, "img ", 4) != 0)
        return 0;
    long side = strtol(sizes + 4, &end, 10);
    return *end == ',' && side > 0 && side <= INT_MAX ? (int)side : 0;
}

sfp_status sfp__saved_check_backbone(const sfp_tensor_file *st, const sfp_vit *vit, sfp_error *err)
{
    const char *sum = sfp__tensor_file_meta(st, "backbone"), *sizes = sfp__tensor_file_meta(st, "backbone-sizes"),
               *file = sfp__tensor_file_meta(st, "backbone-file");
    identity id = identify(vit);
    if ((!sum || strcmp(sum, id.sum) == 0) && (!sizes || strcmp(sizes, id.sizes) == 0))
        return SFP_OK;
    char was[3][SFP_NAME_MAX], other[sizeof id.sizes];
    int side = sfp__saved_img_size(st);
    if (side && side != vit->config.img_size) {
        (void)snprintf(other, sizeof other, "img %d%s", side, strchr(id.sizes, ','));
        if (strcmp(other, sizes) == 0)
            return sfp__fail(err, SFP_EINVAL,
                             "%s: was learned at an input size of %d, this backbone is at %d (img-size %d brings it there)",
                             st->path, side, vit->config.img_size, side);
    }
    return sfp__fail(err, SFP_EINVAL, "%s: was learned on backbone '%s' (%s; checksum %s), this one is '%s' (%s; checksum %s)",
                     st->path, sfp__printable(file ? file : "?", was[0], sizeof was[0]),
                     sfp__printable(sizes ? sizes : "?", was[1], sizeof was[1]),
                     sfp__printable(sum ? sum : "?", was[2], sizeof was[2]), id.file, id.sizes, id.sum);
}

#include "learner/settings.h"

#include "learner/settings_list.h"

#include <assert.h>
#include <string.h>

#define AT(member) SFP__AT(sfp__learner_options, member)

const sfp__opt sfp__learner_rows[] = {
    SFP__ROW_INT("tasks", "J|free", "free", 1, 65536, "Number of known tasks, or a task-free stream.",
                 SFP__TRAINED(AT(fp.tasks), STATE), .named = {"free", 0}),
    SFP__ROWS_TRAIN(AT) SFP__ROWS_INPUT(AT) SFP__ROWS_SELECT(AT) SFP__ROWS_BUFFER(AT) SFP__ROWS_FINGERPRINT(AT) SFP__ROWS_HEAD(AT)
        SFP__ROW_INT("classes", "C", "0", 0, 1 << 20, "Number of classes known from the start (at least 1 with known tasks).",
                     SFP__TRAINED(AT(fp.classes), RUN)),
};
const size_t sfp__learner_row_count = sizeof sfp__learner_rows / sizeof *sfp__learner_rows;

_Static_assert(offsetof(sfp__fp_options, last_layer) == offsetof(sfp__fp_options, first_layer) + sizeof(int), "a range");
_Static_assert(sizeof(sfp__drift) == sizeof(int) && sizeof(sfp__drop_rule) == sizeof(int), "enums are stored as int");

const char *sfp__selector_name(int i)
{
    const sfp__selector *s = sfp__selector_at(i);
    return s ? s->name : NULL;
}

const char *sfp__buffer_method_name(int i)
{
    const sfp__buffer_method *m = sfp__buffer_method_at(i);
    return m ? m->name : NULL;
}

sfp_status sfp__learner_set(sfp__learner_options *o, const char *key, const char *text, sfp_error *err)
{
    const sfp__opt *row = sfp__opt_find(sfp__learner_rows, sfp__learner_row_count, key);
    sfp__value v = {.rank = SFP__RANK_FILE};
    assert(row);
    TRY(sfp__opt_parse(row, text, row->name, &v, err));
    sfp__opt_store(row, &v, o);
    return SFP_OK;
}

void sfp__learner_normalise(sfp__learner_options *o, const sfp__vit_config *vit, int word)
{
    enum { BACKBONE, NONE, IMAGENET };
    for (int i = 0; i < 3; i++) {
        o->mean[i] = word == BACKBONE ? vit->mean[i] : word == NONE ? 0 : word == IMAGENET ? sfp__imagenet_mean[i] : 0.5f;
        o->std[i] = word == BACKBONE ? vit->std[i] : word == NONE ? 1 : word == IMAGENET ? sfp__imagenet_std[i] : 0.5f;
    }
}

bool sfp__learner_has(const sfp__learner_options *o, const sfp__opt *row)
{
    return row->only != (o->method ? SFP__ONLY_TRAINED : SFP__ONLY_CLOSED_FORM);
}

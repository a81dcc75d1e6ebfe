/* Files of released versions (tests/fuzz/corpus/versions): VERSION-METHOD.state and VERSION-METHOD.checkpoint, made by `streamfp run` of
 * that version with backbone.safetensors. Each is read, or refused with a message that says why. */
#include "world.h"

#include <dirent.h>

static const char versions[] = "tests/fuzz/corpus/versions";

static sfp_engine *version_engine(void)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open(kept_print("%s/backbone.safetensors", versions), &one_thread, &e, &err));
    return keep_engine(e);
}

static sfp_learner *learner_for(sfp_engine *e, const char *method)
{
    bool prompted = strcmp(method, "linear") == 0 || strcmp(method, "mix") == 0;
    return learner_of(e, prompted ? TRAINED("batch", "5", "pool", "2", "prompt-length", "2", "prompt-layers", "0-1",
                                            "buffer-size", "2", "replay", "2")
                                  : SETTINGS("batch", "5", "method", method));
}

/* Learns from one image and predicts it, to show that what was read can be used. */
static void use(sfp_learner *l)
{
    sfp_prediction answer;
    const sfp_sample sample = flat_sample(1, 1);
    MUST(sfp_learner_offer(l, 1, &sample, NULL, &err));
    MUST(sfp_predictor_run(predictor_of(l), 1, &sample.image, &answer, &err));
    assert_in_range(answer.label, 0, 9);
}

static void check_refused(const char *why)
{
    if (!strstr(err.message, why))
        fail_msg("refused with '%s', expected '%s'", err.message, why);
}

/* Every state can be predicted with, except those of the mixture head, which was removed, and of slda and ridge, whose solutions have other
 * tensors. Learning continues from a state with fingerprints or sums. */
static void read_state(sfp_engine *e, const char *path, const char *method)
{
    sfp_predictor *p = NULL;
    sfp_prediction answer;
    const sfp_sample sample = flat_sample(1, 1);
    if (strcmp(method, "mix") == 0) {
        REFUSED(sfp_predictor_open(e, path, &small_predictor, &p, &err), SFP_ESHAPE,
                "tensor 'head.mix' is (3,), expected no tensor");
        return;
    }
    if (sfp_predictor_open(e, path, &small_predictor, &p, &err)) {
        assert_true(strcmp(method, "slda") == 0 || strcmp(method, "ridge") == 0);
        check_refused("strength");
        return;
    }
    (void)keep_predictor(p);
    MUST(sfp_predictor_run(p, 1, &sample.image, &answer, &err));
    assert_in_range(answer.label, 0, 9);
    sfp_learner *l = learner_for(e, method);
    if (sfp_learner_load(l, path, &err))
        check_refused("sums");
    else
        use(l);
}

static void read_checkpoint(sfp_engine *e, const char *path, const char *method)
{
    sfp_learner *l = learner_for(e, method);
    if (sfp_learner_resume(l, path, NULL, &err))
        check_refused("written by an earlier version");
    else
        use(l);
}

TEST(files_of_released_versions_are_read_or_refused_with_a_reason)
{
    sfp_engine *e = version_engine();
    DIR *d = opendir(versions);
    int files = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        KEPT_IN_BLOCK;
        const char *name = entry->d_name, *dash = strchr(name, '-'), *dot = strrchr(name, '.');
        if (!dash || !dot)
            continue;
        const char *method = kept_print("%.*s", (int)(dot - dash - 1), dash + 1), *path = kept_print("%s/%s", versions, name);
        files++;
        if (strcmp(dot, ".state") == 0)
            read_state(e, path, method);
        else
            read_checkpoint(e, path, method);
    }
    (void)closedir(d);
    assert_true(files > 20);
}

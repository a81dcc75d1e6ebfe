/* The rows of the learner's settings (base/settings.h). Two tables contain them, which differ in the place of the values:
 * sfp__learner_rows (learner/settings.h), by which files of a learner are read and written, and that of a run (run/options.c).
 * AT(member) is the place of a member of sfp__learner_options. */
#ifndef SFP_LEARNER_SETTINGS_LIST_H
#define SFP_LEARNER_SETTINGS_LIST_H

/* The kind of learner that a setting belongs to, and how its files save it. */
#define SFP__TRAINED(place, kind) place, .scope = SFP__SCOPE_LEARNER, .only = SFP__ONLY_TRAINED, .saved = SFP__SAVED_##kind
#define SFP__CLOSED_FORM(place, kind) \
    place, .scope = SFP__SCOPE_LEARNER, .only = SFP__ONLY_CLOSED_FORM, .saved = SFP__SAVED_##kind
#define SFP__EVERY(place, kind) place, .scope = SFP__SCOPE_LEARNER, .saved = SFP__SAVED_##kind

/* The part of a batch that is trained on */
#define SFP__ROWS_SELECT(AT)                                                                                                     \
    SFP__ROW_STRING("select", "NAME", "streamfp", "Selector: chooses the coreset, the samples of a batch to train on.",          \
                    SFP__TRAINED(AT(select), RUN), .word = sfp__selector_name, .example = "--preset paper --select kcenter",     \
                    .see = "sigma weighted"),                                                                                    \
        SFP__ROW_REAL("sigma", "R", "0.5", 1e-9, 1e9, "Size of the coreset, relative to the batch; 1 or more: the whole batch.", \
                      SFP__TRAINED(AT(coreset.sigma), RUN), .example = "--preset paper --sigma 0.3", .see = "select batch"),     \
        SFP__ROW_SWITCH("weighted", "off", "Multiply the loss of each sample by the weight from the selector.",                  \
                        SFP__TRAINED(AT(weighted), RUN), .example = "--preset paper --select craig --weighted",                  \
                        .see = "select"),

/* Rehearsal */
#define SFP__ROWS_BUFFER(AT)                                                                                                \
    SFP__ROW_STRING("buffer", "NAME", "streamfp", "Method that decides which samples the rehearsal buffer keeps.",          \
                    SFP__TRAINED(AT(buffer.method), RUN), .word = sfp__buffer_method_name,                                  \
                    .example = "--preset paper --buffer er", .see = "buffer-size replay"),                                  \
        SFP__ROW_INT("buffer-size", "M", "102", 1, 1 << 24, "Number of slots of the buffer.",                               \
                     SFP__TRAINED(AT(buffer.slots), RUN), .example = "--preset paper --buffer-size 200",                    \
                     .see = "buffer replay"),                                                                               \
        SFP__ROW_INT("replay", "R", "10", 0, 100000, "Number of replayed samples per step.", SFP__TRAINED(AT(replay), RUN), \
                     .example = "--preset paper --replay 5", .see = "buffer buffer-size"),                                  \
        SFP__ROW_CHOICE("drop-rule", "alg2|eq8", "alg2",                                                                    \
                        "Weights of the slots to replace: Algorithm 2 or Equation 8 of the paper.",                         \
                        SFP__TRAINED(AT(buffer.drop), RUN), .example = "--preset paper --drop-rule eq8", .see = "buffer"),

/* The training step */
#define SFP__ROWS_TRAIN(AT)                                                                                                   \
    SFP__ROW_INT("batch", "B", "20", 1, 100000, "Maximum number of samples per timestamp.", SFP__EVERY(AT(batch), INFERENCE), \
                 .example = "--batch 10", .see = "rate sigma"),                                                               \
        SFP__ROW_INT("steps", "K", "1", 1, 1000, "Number of gradient steps per timestamp.", SFP__TRAINED(AT(steps), RUN),     \
                     .example = "--preset paper --steps 2", .see = "lr replay"),                                              \
        SFP__ROW_REAL("lr", "R", "0.001", 0, 1e6, "Learning rate of Adam.", SFP__TRAINED(AT(adam.lr), RUN),                   \
                      .example = "--preset paper --lr 0.003", .see = "steps"),                                                \
        SFP__ROW_INT("seed", "N", "0", 0, INT64_MAX, "Seed of all random numbers.", SFP__EVERY(AT(seed), INFERENCE),          \
                     .changes = SFP__CHANGES_RESULT, .example = "--seed 3", .see = "order within"),

/* The fingerprints */
#define SFP__ROWS_FINGERPRINT(AT)                                                                                                \
    SFP__ROW_CHOICE(                                                                                                             \
        "pool-kind", "coda|l2p|dualprompt", "coda",                                                                              \
        "How prefixes are made from the fingerprint pool: a weighted sum of all components, the five components with "           \
        "the nearest keys, or general components and one expert per task.",                                                      \
        SFP__TRAINED(AT(fp.kind), STATE), .example = "--preset paper --pool-kind dualprompt",                                    \
        .see = "pool prompt-length prompt-layers"),                                                                              \
        SFP__ROW_INT("pool", "N", "100", 1, 65536, "Number of components per layer.", SFP__TRAINED(AT(fp.pool), STATE),          \
                     .example = "--preset paper --pool 50", .see = "pool-kind grow-by"),                                         \
        SFP__ROW_INT("prompt-length", "N", "8", 2, 256, "Rows per component (must be even).",                                    \
                     SFP__TRAINED(AT(fp.length), STATE), .example = "--preset paper --prompt-length 4",                          \
                     .see = "pool prompt-layers"),                                                                               \
        SFP__ROW_RANGE("prompt-layers", "A-B", "0-4", 0, SFP__VIT_MAX_DEPTH - 1, "Layers that have prefixes, first and last.",   \
                       SFP__TRAINED(AT(fp.first_layer), STATE), .example = "--preset paper --prompt-layers 0-2",                 \
                       .see = "prompt-length"),                                                                                  \
        SFP__ROW_REAL("ortho-mu", "R", "0", 0, 1e6, "Weight of the orthogonality penalty.", SFP__TRAINED(AT(fp.ortho_mu), RUN)), \
        SFP__ROW_SWITCH("attune", "on", "Refine the components by attunement.", SFP__TRAINED(AT(fp.attune), STATE),              \
                        .example = "--preset paper --no-attune", .see = "attune-topk attune-residual"),                          \
        SFP__ROW_INT("attune-topk", "N", "3", 1, 3, "Number of maps that the gate of attunement mixes.",                         \
                     SFP__TRAINED(AT(fp.attune_topk), STATE), .example = "--preset paper --attune-topk 2", .see = "attune"),     \
        SFP__ROW_SWITCH("attune-residual", "off", "Add the component itself to the result of attunement.",                       \
                        SFP__TRAINED(AT(fp.attune_residual), STATE), .example = "--preset paper --attune-residual",              \
                        .see = "attune"),                                                                                        \
        SFP__ROW_CHOICE("prefix", "projected|raw", "projected",                                                                  \
                        "Use prefixes as keys and values (projected), or project them first (raw).",                             \
                        SFP__TRAINED(AT(fp.prefix), STATE), .example = "--preset paper --prefix raw", .see = "prompt-length"),   \
        SFP__ROW_CHOICE("drift", "off|new-class", "new-class",                                                                   \
                        "Task-free streams: whether a sample of a new class activates new components.",                          \
                        SFP__TRAINED(AT(drift), RUN), .example = "--preset paper --tasks free --drift off",                      \
                        .see = "grow-by tasks"),                                                                                 \
        SFP__ROW_INT("grow-by", "N", "0", 0, 65536,                                                                              \
                     "Task-free streams: number of components to activate at a time; 0: a tenth of the pool.",                   \
                     SFP__TRAINED(AT(fp.span), RUN), .example = "--preset paper --tasks free --grow-by 5", .see = "drift pool"),

/* The head */
#define SFP__ROWS_HEAD(AT)                                                                                                  \
    SFP__ROW_INT("taps", "K", "1", 0, SFP__VIT_MAX_DEPTH,                                                                   \
                 "Closed-form heads learn from the class tokens after the last K blocks; 0: half of the blocks.",           \
                 SFP__CLOSED_FORM(AT(taps), STATE), .example = "--taps 2", .see = "tap-mean method"),                       \
        SFP__ROW_SWITCH("tap-mean", "off",                                                                                  \
                        "Closed-form heads learn also from the mean of the patch tokens after the last block but one.",     \
                        SFP__CLOSED_FORM(AT(tap_mean), STATE), .example = "--tap-mean off", .see = "taps method"),          \
        SFP__ROW_INT("merge-tokens", "R", "0", 0, 4096,                                                                     \
                     "Closed-form heads: each block but the last merges the R most similar pairs of patch tokens; faster, " \
                     "and less accurate.",                                                                                  \
                     SFP__CLOSED_FORM(AT(merge_tokens), STATE), .example = "--merge-tokens 8", .see = "img-size method"),   \
        SFP__ROW_CHOICE(                                                                                                    \
            "ridge", "plain|balanced", "plain",                                                                             \
            "Head ridge: scores as the regression gives them, which prefer frequent classes, or without this preference.",  \
            SFP__CLOSED_FORM(AT(ridge_balanced), STATE), .example = "--ridge plain", .see = "method"),                      \
        SFP__ROW_REAL(                                                                                                      \
            "half-life", "N|off", "off", 1, 1e15,                                                                           \
            "Samples count half after N later ones, so that a head follows a world that changes; off: all count the same.", \
            SFP__CLOSED_FORM(AT(half_life), STATE), .named = {"off", 0}, .example = "--half-life 5000", .see = "method"),

/* The input. Mean and standard deviation are saved as numbers. */
#define SFP__ROWS_INPUT(AT)                                                                                                  \
    SFP__ROW_CHOICE("resize", "squash|crop", "squash",                                                                       \
                    "How images become square: scale both sides, or scale the shorter side and crop the centre.",            \
                    SFP__EVERY(AT(resize), STATE), .example = "--resize crop", .see = "normalise img-size"),                 \
        SFP__ROW_CHOICE("decode", "exact|fast", "exact",                                                                     \
                        "How large JPEGs are decoded: all pixels, or fewer if the resized image has less than half of them " \
                        "on each side, which is nearly the same.",                                                           \
                        SFP__EVERY(AT(decode), STATE), .example = "--decode exact", .see = "resize"),                        \
        SFP__ROW_CHOICE("normalise", "backbone|none|imagenet|half", "backbone",                                              \
                        "Mean and standard deviation that normalise images; backbone: those of its file.",                   \
                        .scope = SFP__SCOPE_LEARNER, .example = "--normalise half", .see = "resize backbone"),

#endif

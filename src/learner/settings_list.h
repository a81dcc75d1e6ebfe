/* The learner's options, written once: settings.c makes its table of it, the command line its own, a heading a list.
 * X(type, key, values, default, help, place in sfp__learner_options, least, most) */
#ifndef SFP_LEARNER_SETTINGS_LIST_H
#define SFP_LEARNER_SETTINGS_LIST_H

/* Which part of a batch is trained on */
#define SFP_SETTINGS_SELECT(X)                                                                                \
    X(SELECTOR, "select", "NAME", "streamfp", "Which part of a batch is trained on.", select, 0, 0)           \
    X(REAL, "sigma", "R", "0.5", "Coreset ratio; 1 and more: the whole batch.", coreset.sigma, 1e-9, 1e9)     \
    X(CHOICE, "coreset", "exact|paper", "exact", "How an odd coreset is cut.", coreset.mode, 0, 0)            \
    X(FLIP, "learnloss-order", "high|low", "high",                                                            \
      "learnloss: the highest predicted losses, or, as its authors' code, the lowest.", coreset.lowest, 0, 0) \
    X(FLAG, "weighted", "on|off", "off", "The selector's weights enter the loss.", weighted, 0, 0)

/* Rehearsal */
#define SFP_SETTINGS_BUFFER(X)                                                                                                \
    X(BUFFER, "buffer", "NAME", "streamfp", "What the rehearsal buffer keeps and drops.", buffer.method, 0, 0)                \
    X(INT, "buffer-size", "M", "102", "Slots of the buffer.", buffer.slots, 1, 1 << 24)                                       \
    X(SIZE, "buffer-bytes", "N", "0", "Bytes the buffer may take; 0: no limit.", buffer.budget, 0, 1e15)                      \
    X(FLIP, "keep", "pixels|compressed", "pixels", "What a slot keeps of an image.", keep_compressed, 0, 0)                   \
    X(INT, "replay", "R", "10", "Rehearsed samples a step.", replay, 0, 100000)                                               \
    X(CHOICE, "drop-rule", "alg2|eq8", "alg2", "Weights of the slots to drop: Algorithm 2 or Equation 8.", buffer.drop, 0, 0) \
    X(CHOICE, "nu", "at-least-one|reservoir", "at-least-one", "Least replacements a batch.", buffer.nu, 0, 0)

/* The training step */
#define SFP_SETTINGS_TRAIN(X)                                                 \
    X(INT, "batch", "B", "20", "Most samples a timestamp.", batch, 1, 100000) \
    X(INT, "steps", "K", "1", "Gradient steps a timestamp.", steps, 1, 1000)  \
    X(FLOAT, "lr", "R", "0.001", "Adam's learning rate.", adam.lr, 0, 1e6)    \
    X(SEED, "seed", "N", "0", "Seed of all random numbers.", seed, 0, 0)

/* What is learned beside the classifier */
#define SFP_SETTINGS_FINGERPRINT(X)                                                                                             \
    X(CHOICE, "pool-kind", "coda|l2p|dualprompt", "coda",                                                                       \
      "How prefixes are made of it: a weighted sum, the five with the nearest keys, general prompts and an expert a task.",     \
      fp.kind, 0, 0)                                                                                                            \
    X(INT, "pool", "N", "100", "Fingerprint components a layer.", fp.pool, 1, 65536)                                            \
    X(INT, "prompt-length", "N", "8", "Rows a component; even.", fp.length, 2, 256)                                             \
    X(LAYERS, "prompt-layers", "A-B", "0-4", "Layers that get prefixes.", fp.first_layer, 0, SFP_VIT_MAX_DEPTH - 1)             \
    X(FLOAT, "ortho-mu", "R", "0", "Weight of the orthogonality penalty.", fp.ortho_mu, 0, 1e6)                                 \
    X(FLAG, "attune", "on|off", "on", "Attunement of the fingerprints.", fp.attune, 0, 0)                                       \
    X(INT, "attune-topk", "N", "3", "Gate outputs that are kept.", fp.attune_topk, 1, 3)                                        \
    X(FLAG, "attune-residual", "on|off", "off", "Attunement adds the fingerprint itself.", fp.attune_residual, 0, 0)            \
    X(CHOICE, "prefix", "projected|raw", "projected", "Prefixes after the projections, or before.", fp.prefix, 0, 0)            \
    X(FLIP, "query", "two|one", "two", "Queries by a pass of their own, or the class token of the prompted one.", fp.query_one, \
      0, 0)                                                                                                                     \
    X(CHOICE, "drift", "off|new-class|ph", "new-class", "Free streams: what opens new components.", drift, 0, 0)                \
    X(INT, "span", "N", "0", "Free streams: components opened at a time; 0: a tenth of the pool.", fp.span, 0, 65536)

/* The classifier */
#define SFP_SETTINGS_HEAD(X)                                                 \
    X(CHOICE, "head", "linear|mix", "linear", "The classifier.", head, 0, 0) \
    X(CHOICE, "head-feed", "coreset|batch|auto", "auto",                     \
      "Which queries the mixed heads learn from; auto: the whole batch while there is time.", feed, 0, 0)

/* What the stream is known to be */
#define SFP_SETTINGS_STREAM(X)                                                                              \
    X(TASKS, "tasks", "J|free", "free", "Known tasks, or a stream without boundaries.", fp.tasks, 1, 65536) \
    X(CLASSES, "classes", "C", "0", "Classes known from the start (needed with known tasks).", fp.classes, 0, 1 << 20)

/* How images become input */
#define SFP_SETTINGS_INPUT(X)                                                                               \
    X(CHOICE, "resize", "squash|crop", "squash", "How images are brought to the input size.", resize, 0, 0) \
    X(NORM, "normalise", "checkpoint|none|imagenet|half", "checkpoint", "Mean and deviation taken from images.", mean, 0, 0)

#define SFP_SETTINGS_LIST(X)    \
    SFP_SETTINGS_SELECT(X)      \
    SFP_SETTINGS_BUFFER(X)      \
    SFP_SETTINGS_TRAIN(X)       \
    SFP_SETTINGS_FINGERPRINT(X) \
    SFP_SETTINGS_HEAD(X)        \
    SFP_SETTINGS_STREAM(X)      \
    SFP_SETTINGS_INPUT(X)

#endif

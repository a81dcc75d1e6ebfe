/* The learner's options, one row each. learner/settings.c and run/options.c build their tables from these lists.
 * X(type, key, values, default, help, member of sfp__learner_options, min, max). */
#ifndef SFP_LEARNER_SETTINGS_LIST_H
#define SFP_LEARNER_SETTINGS_LIST_H

/* The part of a batch that is trained on */
#define SFP_SETTINGS_SELECT(X)                                                                                                   \
    X(SELECTOR, "select", "NAME", "streamfp", "Selector: chooses the coreset, the samples of a batch to train on.", select, 0,   \
      0)                                                                                                                         \
    X(REAL, "sigma", "R", "0.5", "Size of the coreset, relative to the batch; 1 or more: the whole batch.", coreset.sigma, 1e-9, \
      1e9)                                                                                                                       \
    X(FLAG, "weighted", "on|off", "off", "Multiply the loss of each sample by the weight from the selector.", weighted, 0, 0)

/* Rehearsal */
#define SFP_SETTINGS_BUFFER(X)                                                                                                 \
    X(BUFFER, "buffer", "NAME", "streamfp", "Method that decides which samples the rehearsal buffer keeps.", buffer.method, 0, \
      0)                                                                                                                       \
    X(INT, "buffer-size", "M", "102", "Number of slots of the buffer.", buffer.slots, 1, 1 << 24)                              \
    X(INT, "replay", "R", "10", "Number of replayed samples per step.", replay, 0, 100000)                                     \
    X(CHOICE, "drop-rule", "alg2|eq8", "alg2", "Weights of the slots to replace: Algorithm 2 or Equation 8 of the paper.",     \
      buffer.drop, 0, 0)

/* The training step */
#define SFP_SETTINGS_TRAIN(X)                                                                \
    X(INT, "batch", "B", "20", "Maximum number of samples per timestamp.", batch, 1, 100000) \
    X(INT, "steps", "K", "1", "Number of gradient steps per timestamp.", steps, 1, 1000)     \
    X(FLOAT, "lr", "R", "0.001", "Learning rate of Adam.", adam.lr, 0, 1e6)                  \
    X(SEED, "seed", "N", "0", "Seed of all random numbers.", seed, 0, 0)

/* The fingerprints */
#define SFP_SETTINGS_FINGERPRINT(X)                                                                                              \
    X(CHOICE, "pool-kind", "coda|l2p|dualprompt", "coda",                                                                        \
      "How prefixes are made from the fingerprint pool: a weighted sum of all components, the five components with the nearest " \
      "keys, or general components and one expert per task.",                                                                    \
      fp.kind, 0, 0)                                                                                                             \
    X(INT, "pool", "N", "100", "Number of components per layer.", fp.pool, 1, 65536)                                             \
    X(INT, "prompt-length", "N", "8", "Rows per component (must be even).", fp.length, 2, 256)                                   \
    X(LAYERS, "prompt-layers", "A-B", "0-4", "Layers that have prefixes, first and last.", fp.first_layer, 0,                    \
      SFP_VIT_MAX_DEPTH - 1)                                                                                                     \
    X(FLOAT, "ortho-mu", "R", "0", "Weight of the orthogonality penalty.", fp.ortho_mu, 0, 1e6)                                  \
    X(FLAG, "attune", "on|off", "on", "Refine the components by attunement.", fp.attune, 0, 0)                                   \
    X(INT, "attune-topk", "N", "3", "Number of maps that the gate of attunement mixes.", fp.attune_topk, 1, 3)                   \
    X(FLAG, "attune-residual", "on|off", "off", "Add the component itself to the result of attunement.", fp.attune_residual, 0,  \
      0)                                                                                                                         \
    X(CHOICE, "prefix", "projected|raw", "projected",                                                                            \
      "Use prefixes as keys and values (projected), or project them first (raw).", fp.prefix, 0, 0)                              \
    X(CHOICE, "drift", "off|new-class", "new-class",                                                                             \
      "Task-free streams: whether a sample of a new class activates new components.", drift, 0, 0)                               \
    X(INT, "grow-by", "N", "0", "Task-free streams: number of components to activate at a time; 0: a tenth of the pool.",        \
      fp.span, 0, 65536)

/* Closed-form heads */
#define SFP_SETTINGS_CLOSED_FORM(X)                                                                                              \
    X(INT, "taps", "K", "1", "Closed-form heads learn from the class tokens after the last K blocks; 0: half of the blocks.",    \
      taps, 0, SFP_VIT_MAX_DEPTH)                                                                                                \
    X(FLAG, "tap-mean", "on|off", "off",                                                                                         \
      "Closed-form heads learn also from the mean of the patch tokens after the last block but one.", tap_mean, 0, 0)            \
    X(FLIP, "ridge", "plain|balanced", "plain",                                                                                  \
      "Head ridge: scores as the regression gives them, which prefer frequent classes, or without this preference.",             \
      ridge_balanced, 0, 0)                                                                                                      \
    X(REAL, "half-life", "N|off", "off",                                                                                         \
      "Samples count half after N later ones, so that a head follows a world that changes; off: all count the same.", half_life, \
      1, 1e15)                                                                                                                   \
    X(FLIP, "slda", "sums|published", "sums",                                                                                    \
      "Head slda: exact, from sums over samples, or by the published update, which depends on their order.", slda_published, 0,  \
      0)                                                                                                                         \
    X(FLIP, "shrinkage", "oas|1e-4", "oas",                                                                                      \
      "Head slda: shrinkage of the covariance, estimated from the samples (OAS) or fixed.", fixed_shrinkage, 0, 0)

/* The stream */
#define SFP_SETTINGS_STREAM(X)                                                                                              \
    X(TASKS, "tasks", "J|free", "free", "Number of known tasks, or a task-free stream.", fp.tasks, 1, 65536)                \
    X(CLASSES, "classes", "C", "0", "Number of classes known from the start (at least 1 with known tasks).", fp.classes, 0, \
      1 << 20)

/* The input */
#define SFP_SETTINGS_INPUT(X)                                                                                     \
    X(CHOICE, "resize", "squash|crop", "squash",                                                                  \
      "How images become square: scale both sides, or scale the shorter side and crop the centre.", resize, 0, 0) \
    X(NORM, "normalise", "backbone|none|imagenet|half", "backbone",                                               \
      "Mean and standard deviation that normalise images; backbone: those of its file.", mean, 0, 0)

#define SFP_SETTINGS_LIST(X)    \
    SFP_SETTINGS_SELECT(X)      \
    SFP_SETTINGS_BUFFER(X)      \
    SFP_SETTINGS_TRAIN(X)       \
    SFP_SETTINGS_FINGERPRINT(X) \
    SFP_SETTINGS_CLOSED_FORM(X) \
    SFP_SETTINGS_STREAM(X)      \
    SFP_SETTINGS_INPUT(X)

#endif

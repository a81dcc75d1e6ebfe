/* streamfp serve: the service (serve/serve.h). It has the options of `run` and its own (`own`). */
#include "serve/serve.h"

#include "cli/command.h"
#include "cli/run_settings.h"
#include "cli/ui.h"

#include "base/mem.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { OPTIONS_MAX = 128 };

static const sfp__opt own[] = {
    SFP__ROW_GROUP("Service"),
    SFP__ROW_STRING("listen", "ADDRESS:PORT", "127.0.0.1:8080", "Address of the service; port 0: any free port.",
                    .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING("socket", "PATH", NULL, "Unix socket of the service, instead of an address.", .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING(
        "token-file", "FILE", NULL,
        "File with a token that requests must contain (Authorization: Bearer TOKEN). Required for an address that other machines "
        "can reach. SIGHUP reads the file again.",
        .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING("model", "NAME=DIR", NULL,
                    "A model and its directory; may be repeated. Default: --out, named by its last part.",
                    .scope = SFP__SCOPE_COMMAND, .repeats = true),
    SFP__ROW_INT("max-body", "BYTES", "16777216", 1024, INT64_C(1) << 30, "Maximum size of a request.",
                 .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_INT("max-connections", "N", "512", 8, 65536,
                 "Maximum number of connections; beyond it, the one that has been idle longest is closed.",
                 .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_INT("workers", "N", "64", 1, 256, "Maximum number of requests that are served at the same time.",
                 .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_REAL("cpu-share", "SHARE", "1", 0.01, 1, "Share of the time for learning; the rest is left to answering requests.",
                  .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_SWITCH(
        "sandbox", "on",
        "Decode images in processes that cannot use files or the network and have limits of memory and time (seccomp, Landlock).",
        .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING("mqtt", "HOST[:PORT]", NULL, "MQTT broker from which images are received and to which answers are published.",
                    .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING(
        "mqtt-topic", "[MODEL=]PATTERN", NULL,
        "Topics of images, such as frigate/+/dog/snapshot; may be repeated. A level {label} is the label of its images.",
        .scope = SFP__SCOPE_COMMAND, .repeats = true),
    SFP__ROW_STRING("mqtt-login", "FILE", NULL, "File with a line USER:PASSWORD for the broker.", .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING("mqtt-agree", "K/N", "3/3", "An answer is published when K of the last N answers of a camera agree.",
                    .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_REAL("mqtt-threshold", "P", "0.8", 0, 1, "Minimum probability of an answer that counts for --mqtt-agree.",
                  .scope = SFP__SCOPE_COMMAND),
    SFP__ROW_STRING("mqtt-discovery", "PREFIX", "homeassistant", "Topic under which Home Assistant looks for new entities.",
                    .scope = SFP__SCOPE_COMMAND),
};
enum { OWN = sizeof own / sizeof *own };

static const sfp__opt *options(size_t *count)
{
    static sfp__opt table[OPTIONS_MAX];
    size_t n;
    const sfp__opt *run = sfp__run_cli_options(&n); /* they come first, because the settings of a run are read by index */
    memcpy(table, run, n * sizeof *table);
    memcpy(table + n, own, sizeof own);
    *count = n + OWN;
    return table;
}

static sfp_status describe(sfp_error *err)
{
    size_t count;
    TRY(sfp__run_describe_options(err));
    (void)options(&count);
    return SFP_OK;
}

/* ------------------------------------------------------------------------ models */

static bool is_model_name(const char *name)
{
    return *name && strlen(name) < 64 &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] == '\0';
}

/* Reads the models from --model (named: lines NAME=DIR) or --out. Splits `text`, which must live as long as *o. */
static sfp_status read_models(sfp__serve_options *o, char *text, bool named, sfp_error *err)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *dir = named ? strchr(line, '=') : line;
        const char *name = line;
        if (named && dir)
            *dir++ = '\0';
        while (!named && strlen(line) > 1 && line[strlen(line) - 1] == '/')
            line[strlen(line) - 1] = '\0';
        if (!named && strrchr(line, '/'))
            name = strrchr(line, '/') + 1;
        if (!dir || !*dir || (named && !is_model_name(name)))
            return sfp__fail_key(err, "model", SFP_EINVAL,
                                 "model is '%.100s', expected NAME=DIR with a NAME of letters, digits, '.', '_' and '-'", line);
        for (int i = 0; i < o->model_count; i++)
            if (strcmp(o->names[i], name) == 0 || strcmp(o->dirs[i], dir) == 0)
                return sfp__fail_key(err, "model", SFP_EINVAL, "model '%.60s' or its directory is given twice", name);
        if (o->model_count == SFP__SERVE_MODELS_MAX)
            return sfp__fail_key(err, "model", SFP_ELIMIT, "model is given more than %d times", SFP__SERVE_MODELS_MAX);
        o->names[o->model_count] = is_model_name(name) ? name : "model";
        o->dirs[o->model_count++] = dir;
    }
    return SFP_OK;
}

/* ----------------------------------------------------------------------- command */

static atomic_int hangup;

static void on_hangup(int number)
{
    (void)number;
    atomic_store(&hangup, 1);
}

static void on_ready(const char *address)
{
    (void)printf("listening on %s\n", address);
    (void)fflush(stdout);
}

static bool is_log(const char *data)
{
    return data && (strncmp(data, "redis:", 6) == 0 || strncmp(data, "kafka:", 6) == 0);
}

/* A worker of a message log is one model, named by the stream: everything that it learns is in the log and its share. */
static sfp_status name_log_model(sfp__serve_options *o, char *name, sfp_error *err)
{
    name[strcspn(name, "@")] = '\0';
    if (!sfp_settings_get(o->settings, "share"))
        return sfp__fail_key(err, "share", SFP_EINVAL, "share is missing, expected the directory of the workers (--share DIR)");
    o->of_log = true;
    o->answer_with = sfp_settings_get(o->settings, "answer-with");
    o->names[0] = is_model_name(name) ? name : "model";
    o->dirs[0] = sfp_settings_get(o->settings, "share");
    o->model_count = 1;
    return SFP_OK;
}

/* Accepts only the sources that a service can have: submitted samples, and for one model a directory in sync. */
static sfp_status check_data(const sfp__args *a, const sfp_settings *settings, int models, sfp_error *err)
{
    static const char sync[] = ",sync";
    const char *data = sfp_settings_get(settings, "data");
    if (!data || !sfp__args_given(a, "data") || strncmp(data, "submitted", 9) == 0)
        return SFP_OK;
    size_t n = strlen(data), end = strlen(sync);
    bool watched = strncmp(data, "watch:", 6) == 0 && n > end && strcmp(data + n - end, sync) == 0;
    if (!watched)
        return sfp__fail_key(err, "data", SFP_EINVAL,
                             "data is '%.80s', expected submitted, watch:DIR,sync, redis: or kafka:", data);
    if (models > 1)
        return sfp__fail_key(err, "data", SFP_EINVAL,
                             "data is '%.80s' and there are %d models, expected one model: only one can learn a directory", data,
                             models);
    return SFP_OK;
}

static sfp_status serve(const sfp__args *a, sfp_settings *settings, sfp_error *err)
{
    const char *models = sfp__args_string(a, "model"), *out = sfp__args_string(a, "out");
    sfp__serve_options o = {.listen = sfp__args_string(a, "listen"),
                            .socket = sfp__args_string(a, "socket"),
                            .token_file = sfp__args_string(a, "token-file"),
                            .max_body = sfp__args_int(a, "max-body"),
                            .max_connections = (int)sfp__args_int(a, "max-connections"),
                            .workers = (int)sfp__args_int(a, "workers"),
                            .cpu_share = sfp__args_real(a, "cpu-share"),
                            .sandbox = sfp__args_flag(a, "sandbox"),
                            .mqtt = sfp__args_string(a, "mqtt"),
                            .mqtt_topics = sfp__args_string(a, "mqtt-topic"),
                            .mqtt_login = sfp__args_string(a, "mqtt-login"),
                            .mqtt_agree = sfp__args_string(a, "mqtt-agree"),
                            .mqtt_threshold = sfp__args_real(a, "mqtt-threshold"),
                            .mqtt_discovery = sfp__args_string(a, "mqtt-discovery"),
                            .settings = settings,
                            .log = sfp__print_log,
                            .hangup = &hangup};
    const char *data = sfp_settings_get(settings, "data");
    bool log = is_log(data);
    if (log && (models || out))
        return sfp__fail_usage(err, "--out and --model cannot be used with a log, whose share has what is learned");
    if (!log && !models == !out)
        return sfp__fail_usage(
            err, "--out or --model is missing, or both are given, expected one of them: where a model and its samples are kept");
    if (!o.mqtt && o.mqtt_topics)
        return sfp__fail_key(err, "mqtt", SFP_EINVAL, "mqtt is missing, expected the broker of --mqtt-topic");
    OWNED char *text = sfp__strdup(log ? data + 6 : models ? models : out);
    TRY(sfp__check_memory(text, err));
    if (log) {
        TRY(name_log_model(&o, text, err));
    } else {
        TRY(read_models(&o, text, models != NULL, err));
        TRY(check_data(a, settings, o.model_count, err));
        if (!sfp__args_given(a, "data"))
            TRY(sfp_settings_set(settings, "data", "submitted", err));
        TRY(sfp_settings_set(settings, "resume", "on", err));
    }
    o.stop = sfp__stop_on_signals();
    const struct sigaction action = {.sa_handler = on_hangup, .sa_flags = SA_RESTART | SA_ONSTACK};
    (void)sigaction(SIGHUP, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    return sfp__serve(&o, on_ready, err);
}

static sfp_status run(const sfp__args *given, sfp_error *err)
{
    sfp_settings *settings = NULL;
    sfp__args a = *given, of_run;
    size_t count;
    const char *config = sfp__args_string(&a, "config");
    if (config && sfp__yaml_config(config, &a, err))
        return sfp__as_usage(err);
    of_run = a;
    of_run.opts = sfp__run_cli_options(&count);
    of_run.count = count;
    TRY(sfp__run_settings(&of_run, &settings, err));
    sfp_status status = serve(&a, settings, err);
    sfp_settings_free(settings);
    return status;
}

const sfp__command sfp__cmd_serve = {
    .name = "serve",
    .summary = "run a service that learns, predicts and accepts corrections",
    .text =
        "Learns from images that clients send over HTTP, predicts images while it learns, and accepts corrections. It is made "
        "to run for months. The page at / shows the state of a model. A labelled sample that was accepted is on the disk and is "
        "learned exactly once, even if the process is killed. docs/service.md and /openapi.json describe the routes.\n\n"
        "The options of a run determine how a model learns. Its directory (--out, or one per --model) contains samples, images "
        "and the learned state; the service continues there after a restart. When it is ready, it prints its address.\n\n"
        "Without --token-file only this machine can connect. On SIGTERM the service answers the requests that have begun, writes "
        "a checkpoint and ends.",
    .examples = "  streamfp serve --out shop\n"
                "  streamfp serve --out dogs --mqtt homeassistant.local --mqtt-topic 'frigate/+/dog/snapshot'\n"
                "  streamfp serve --model dogs=runs/dogs --model cars=runs/cars --listen 0.0.0.0:8080 --token-file token\n"
                "  curl --data-binary @cup.jpg 'http://127.0.0.1:8080/v1/samples?label=cup'\n"
                "  curl --data-binary @photo.jpg http://127.0.0.1:8080/v1/predict\n",
    .options = options,
    .describe = describe,
    .run = run,
};

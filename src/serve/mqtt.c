/* MQTT: receives images and labels, and publishes answers (docs/service.md). One thread, which uses libmosquitto.
 *
 * A message is acknowledged after its image is in the store. With QoS 1 and a persistent session, which are requested here, the broker
 * therefore delivers each message at least once, even if a process is killed or restarted. A message that is delivered again, such as a retained
 * one after each connection, has the same key (a digest of its topic and bytes) and is therefore the same sample. If an image cannot be stored
 * now, the message is not acknowledged: the connection is closed, and the broker sends the image again later.
 *
 * A view is what one value of the wildcards in a topic stands for, for example one camera. A view has an answer, which is published when it
 * changes, and a published image, which a user can label. Home Assistant finds both by discovery messages. In text from messages, every character
 * but letters, digits, '-' and '_' is replaced before it is used in a topic or an identifier. */
#include "serve/internal.h"

#ifdef SFP__MOSQUITTO
#include "base/digest.h"
#include "base/monotonic.h"

#include <limits.h>
#include <math.h>
#include <mosquitto.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PORT = 1883,
    KEEPALIVE = 30,
    TOPICS_MAX = 64,
    VIEWS_MAX = 256,
    VOTES_MAX = 32,
    NAME_BYTES = 64,
    TOPIC_BYTES = 512,
    LABEL_BYTES = 2048 /* more than the longest valid label */
};
static const double first_wait = 0.25, longest_wait = 30, shown_seconds = 10, classes_seconds = 1;

#define AVAILABLE "streamfp/available"
#define LABELS "streamfp/+/+/label/set"

/* A pattern of topics from which images are received. */
typedef struct topic {
    char *pattern;   /* {label} is replaced by + */
    int label_level; /* the level of the topic that is the label; -1: images have none */
    int model;
} topic;

/* One camera, or another source of images with its own topic. */
typedef struct view {
    char name[NAME_BYTES];
    int model;
    char *votes[VOTES_MAX];   /* the last answers; "": below the threshold */
    int next;                 /* index of the newest vote */
    char *state, *attributes; /* as published last; NULL: not published yet */
    char *type;               /* media type of its images */
    uint64_t shown;           /* the sample whose image was published last */
    double shown_at;          /* when it was published; 0: no image can be labelled */
    bool announced;           /* its discovery messages were published */
} view;

struct sfp__mqtt {
    sfp__server *server;
    const sfp__serve_options *opt;
    struct mosquitto *client;
    char *host, *user, *password;
    int port, agree, agree_of;
    topic topics[TOPICS_MAX];
    int topic_count;
    view views[VIEWS_MAX];
    int view_count;
    sfp__text classes[SFP__SERVE_MODELS_MAX]; /* per model: the announced classes, as a JSON array */
    double classes_checked_at;                /* when the classes were compared with those of the models */
    bool connected;                           /* the broker has accepted the connection */
    bool loss_logged;                         /* a warning about the lost connection was logged */
    bool refused;                             /* the last image could not be stored */
    bool unreadable;                          /* a warning about a message was logged; further ones are not */
    pthread_t thread;
    bool runs;
    atomic_bool stop;
};

static void log_message(const sfp__mqtt *m, sfp_log_level level, const char *what, const char *why)
{
    char text[1024];
    (void)snprintf(text, sizeof text, "mqtt %s:%d: %s%s%s", m->host, m->port, what, *why ? ": " : "", why);
    m->opt->log(NULL, level, text);
}

/* ------------------------------------------------------------------------ options */

/* Parses HOST, HOST:PORT or [HOST]:PORT. */
static sfp_status read_address(sfp__mqtt *m, const char *text, sfp_error *err)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : NULL, *colon = strrchr(end ? end : text, ':');
    size_t n = end ? (size_t)(end - text) - 1 : colon ? (size_t)(colon - text) : strlen(text);
    int64_t port = PORT;
    if (n == 0 || (colon && (!sfp__parse_int(colon + 1, &port) || port < 1 || port > 65535)))
        return sfp__fail_key(err, "mqtt", SFP_EINVAL, "mqtt is '%.80s', expected HOST or HOST:PORT", text);
    m->port = (int)port;
    return sfp__text_new(&m->host, err, "%.*s", (int)n, text + (end != NULL));
}

/* Reads a file with one line USER:PASSWORD. */
static sfp_status read_login(sfp__mqtt *m, const char *path, sfp_error *err)
{
    char line[1024] = "";
    FILE *f = fopen(path, "re");
    if (!f)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    size_t n = fread(line, 1, sizeof line - 1, f);
    (void)fclose(f);
    line[n] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    char *colon = strchr(line, ':');
    if (!colon || colon == line)
        return sfp__fail(err, SFP_EINVAL, "%s: expected one line USER:PASSWORD", path);
    *colon = '\0';
    m->user = sfp__strdup(line);
    m->password = sfp__strdup(colon + 1);
    return sfp__check_memory(m->user && m->password, err);
}

/* Parses [MODEL=]PATTERN. */
static sfp_status read_topic(sfp__mqtt *m, const char *text, sfp_error *err)
{
    static const char label[] = "{label}";
    topic t = {.label_level = -1, .model = m->opt->model_count == 1 ? 0 : -1};
    const char *equals = strchr(text, '=');
    for (int i = 0; equals && i < m->opt->model_count; i++)
        if (strncmp(m->opt->names[i], text, (size_t)(equals - text)) == 0 && !m->opt->names[i][equals - text]) {
            t.model = i;
            text = equals + 1;
            break;
        }
    if (t.model < 0)
        return sfp__fail_key(err, "mqtt-topic", SFP_EINVAL,
                             "mqtt-topic is '%.80s', expected MODEL=PATTERN, because there are %d models", text,
                             m->opt->model_count);
    const char *at = strstr(text, label);
    if (at) {
        t.label_level = 0;
        for (const char *s = text; s < at; s++)
            t.label_level += *s == '/';
    }
    TRY(at ? sfp__text_new(&t.pattern, err, "%.*s+%s", (int)(at - text), text, at + strlen(label))
           : sfp__text_new(&t.pattern, err, "%s", text));
    bool good = m->topic_count < TOPICS_MAX && strlen(text) < TOPIC_BYTES && strncmp(text, "streamfp/", 9) != 0 &&
                mosquitto_sub_topic_check(t.pattern) == MOSQ_ERR_SUCCESS;
    if (good)
        m->topics[m->topic_count++] = t;
    else
        sfp__free(t.pattern);
    return good ? SFP_OK
                : sfp__fail_key(
                      err, "mqtt-topic", SFP_EINVAL,
                      "mqtt-topic is '%.80s', expected at most %d patterns such as frigate/+/dog/snapshot or train/{label}, "
                      "which do not begin with streamfp/",
                      text, TOPICS_MAX);
}

static sfp_status read_options(sfp__mqtt *m, sfp_error *err)
{
    char *rest = NULL;
    int used = 0;
    OWNED char *topics = sfp__strdup(m->opt->mqtt_topics ? m->opt->mqtt_topics : "");
    TRY(sfp__check_memory(topics, err));
    TRY(read_address(m, m->opt->mqtt, err));
    if (m->opt->mqtt_login)
        TRY(read_login(m, m->opt->mqtt_login, err));
    if (sscanf(m->opt->mqtt_agree, "%d/%d%n", &m->agree, &m->agree_of, &used) != 2 || m->opt->mqtt_agree[used] || m->agree < 1 ||
        m->agree > m->agree_of || m->agree_of > VOTES_MAX)
        return sfp__fail_key(err, "mqtt-agree", SFP_EINVAL,
                             "mqtt-agree is '%.20s', expected K/N with K from 1 to N and N up to %d", m->opt->mqtt_agree,
                             VOTES_MAX);
    for (char *line = strtok_r(topics, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        TRY(read_topic(m, line, err));
    return m->topic_count > 0 ? SFP_OK
                              : sfp__fail_key(err, "mqtt-topic", SFP_EINVAL,
                                              "mqtt-topic is missing, expected the topics of the images, such as "
                                              "frigate/+/dog/snapshot");
}

/* ---------------------------------------------------------------------------- out */

static void publish(const sfp__mqtt *m, const char *name, const void *payload, size_t n)
{
    if (n <= INT_MAX) /* libmosquitto keeps the message until there is a connection */
        (void)mosquitto_publish(m->client, NULL, name, (int)n, payload, 1, true);
}

/* Appends the text, with '_' instead of every character that is not a letter, a digit, '-' or '_'. */
static void put_safe(char *to, size_t size, const char *text, size_t n)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t used = strlen(to);
    for (size_t i = 0; i < n && used + 1 < size; i++)
        to[used++] = text[i] && strchr(safe, text[i]) ? text[i] : '_';
    to[used] = '\0';
}

static void view_topic(const sfp__mqtt *m, const view *v, const char *what, char out[TOPIC_BYTES])
{
    (void)snprintf(out, TOPIC_BYTES, "streamfp/%.64s/%.64s/%.32s", m->opt->names[v->model], v->name, what);
}

static void publish_view(const sfp__mqtt *m, const view *v, const char *what, const void *payload, size_t n)
{
    char name[TOPIC_BYTES];
    view_topic(m, v, what, name);
    publish(m, name, payload, n);
}

/* Publishes the discovery message of one entity of a view. */
static void announce_one(sfp__mqtt *m, const view *v, const char *kind, const char *what)
{
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    sfp__json j = {.text = &text};
    const char *model = m->opt->names[v->model];
    char id[NAME_BYTES * 3] = "streamfp_", name[TOPIC_BYTES], to[TOPIC_BYTES];
    bool selects = strcmp(kind, "select") == 0, image = strcmp(kind, "image") == 0;
    put_safe(id, sizeof id, model, strlen(model));
    size_t device = strlen(id);
    (void)snprintf(id + device, sizeof id - device, "_%s_%s", v->name, what);
    (void)snprintf(to, sizeof to, "%s/%s/%s/config", m->opt->mqtt_discovery, kind, id);
    sfp__json_object(&j, NULL);
    (void)snprintf(name, sizeof name, "%s %s", v->name, what);
    sfp__json_string(&j, "name", name);
    sfp__json_string(&j, "unique_id", id);
    sfp__json_string(&j, "availability_topic", AVAILABLE);
    view_topic(m, v, what, name);
    sfp__json_string(&j, image ? "image_topic" : "state_topic", name);
    if (image)
        sfp__json_string(&j, "content_type", v->type);
    if (selects) {
        view_topic(m, v, "label/set", name);
        sfp__json_string(&j, "command_topic", name);
        sfp__json_raw(&j, "options", m->classes[v->model].s);
    }
    if (!selects && !image) {
        view_topic(m, v, "attributes", name);
        sfp__json_string(&j, "json_attributes_topic", name);
    }
    id[device] = '\0';
    (void)snprintf(name, sizeof name, "streamfp %s", model);
    sfp__json_object(&j, "device");
    sfp__json_array(&j, "identifiers");
    sfp__json_string(&j, NULL, id);
    sfp__json_end(&j);
    sfp__json_string(&j, "name", name);
    sfp__json_string(&j, "manufacturer", "streamfp");
    sfp__json_string(&j, "sw_version", sfp_version());
    sfp__json_end_all(&j);
    if (!text.failed)
        publish(m, to, text.s, text.length);
}

static void announce(sfp__mqtt *m, view *v)
{
    if (*m->opt->mqtt_discovery) {
        announce_one(m, v, "sensor", "class");
        announce_one(m, v, "image", "image");
        if (m->classes[v->model].length > 2) /* not the empty array [] */
            announce_one(m, v, "select", "label");
    }
    v->announced = true;
}

/* Publishes everything again, because the broker may have lost it in a restart. */
static void publish_all(sfp__mqtt *m)
{
    publish(m, AVAILABLE, "online", 6);
    for (view *v = m->views; v < m->views + m->view_count; v++) {
        announce(m, v);
        if (v->state)
            publish_view(m, v, "class", v->state, strlen(v->state));
        if (v->attributes)
            publish_view(m, v, "attributes", v->attributes, strlen(v->attributes));
    }
}

static sfp_status put_class(void *ctx, const char *name, int64_t samples, sfp_error *err)
{
    (void)samples, (void)err;
    sfp__json_string(ctx, NULL, name);
    return SFP_OK;
}

/* Announces all views of a model again if its classes have changed. */
static void update_classes(sfp__mqtt *m)
{
    double now = sfp__monotonic_seconds();
    if (now - m->classes_checked_at < classes_seconds)
        return;
    m->classes_checked_at = now;
    for (int i = 0; i < m->opt->model_count; i++) {
        sfp__text text = {0}, *known = &m->classes[i];
        sfp__json j = {.text = &text};
        sfp__json_array(&j, NULL);
        bool good = sfp_run_classes(sfp__model_run(sfp__server_model(m->server, i)), put_class, &j, NULL) == SFP_OK;
        sfp__json_end(&j);
        good = good && !text.failed && (!known->s || strcmp(known->s, text.s) != 0);
        sfp__text_done(good ? known : &text);
        if (!good)
            continue;
        *known = text;
        for (view *v = m->views; v < m->views + m->view_count; v++)
            if (v->model == i)
                announce(m, v);
    }
}

/* The class that at least `agree` of the last `agree_of` answers name; NULL: none. */
static const char *find_agreement(const sfp__mqtt *m, const view *v)
{
    for (int i = 0; i < m->agree_of; i++) {
        int same = 0;
        for (int k = 0; k < m->agree_of && v->votes[i] && *v->votes[i]; k++)
            same += v->votes[k] && strcmp(v->votes[k], v->votes[i]) == 0;
        if (same >= m->agree)
            return v->votes[i];
    }
    return NULL;
}

static void replace_text(char **text, const char *by)
{
    char *copy = sfp__strdup(by);
    if (!copy)
        return;
    sfp__free(*text);
    *text = copy;
}

/* Adds an answer to the votes of a view, and publishes the answer of the view if it has changed. */
static void count_answer(sfp__mqtt *m, view *v, uint64_t id, const char *answer)
{
    OWNED sfp__json_value *root = NULL;
    OWNED_BY(sfp__text_done) sfp__text text = {0};
    sfp__json j = {.text = &text};
    if (!answer || sfp__json_parse("answer", answer, strlen(answer), &root, NULL))
        return;
    const sfp__json_value *best = sfp__json_at(sfp__json_get(root, "classes"), 0);
    const char *name = sfp__json_text(sfp__json_get(best, "name"));
    double probability = sfp__json_number(sfp__json_get(best, "probability"));
    bool is_unknown = !name || sfp__json_is(sfp__json_get(root, "is_unknown"), SFP__JSON_TRUE);
    v->next = (v->next + 1) % m->agree_of;
    replace_text(&v->votes[v->next], is_unknown ? "unknown" : probability >= m->opt->mqtt_threshold ? name : "");
    const char *agreed = find_agreement(m, v);
    if (!agreed || (v->state && strcmp(v->state, agreed) == 0))
        return;
    replace_text(&v->state, agreed);
    sfp__json_object(&j, NULL);
    sfp__json_uint(&j, "sample", id);
    sfp__json_string(&j, "class", name);
    sfp__json_real(&j, "probability", name ? probability : (double)NAN);
    sfp__json_raw(&j, "answer", answer);
    sfp__json_end_all(&j);
    if (text.failed)
        return;
    replace_text(&v->attributes, text.s);
    publish_view(m, v, "class", agreed, strlen(agreed));
    publish_view(m, v, "attributes", text.s, text.length);
}

/* Publishes an image for labelling. It stays for shown_seconds; otherwise a user could label the next image by mistake. */
static void show_image(sfp__mqtt *m, view *v, uint64_t id, const void *bytes, size_t n)
{
    double now = sfp__monotonic_seconds();
    if (v->shown_at > 0 && now - v->shown_at < shown_seconds)
        return;
    v->shown = id;
    v->shown_at = now;
    publish_view(m, v, "image", bytes, n);
    publish_view(m, v, "label", "None", 4);
}

/* ----------------------------------------------------------------------------- in */

/* Splits a topic into levels. Those that match a wildcard become the name of the view; the level of {label} becomes the label. */
static void read_levels(const topic *t, const char *name, char view_name[NAME_BYTES], char *label, size_t label_size)
{
    const char *pattern = t->pattern, *whole = name;
    view_name[0] = label[0] = '\0';
    for (int level = 0; *name && *pattern; level++) {
        size_t n = strcspn(name, "/"), p = strcspn(pattern, "/");
        if (level == t->label_level)
            (void)snprintf(label, label_size, "%.*s", (int)n, name);
        else if (*pattern == '+' || *pattern == '#') {
            put_safe(view_name, NAME_BYTES, "_", *view_name ? 1 : 0);
            put_safe(view_name, NAME_BYTES, name, *pattern == '#' ? strlen(name) : n);
        }
        if (*pattern == '#')
            break;
        name += n + (name[n] == '/');
        pattern += p + (pattern[p] == '/');
    }
    if (!*view_name)
        put_safe(view_name, NAME_BYTES, whole, strlen(whole));
}

/* Finds a view, or creates it if `create`. NULL: not found, or there are too many views. */
static view *find_view(sfp__mqtt *m, int model, const char *name, bool create)
{
    for (view *v = m->views; v < m->views + m->view_count; v++)
        if (v->model == model && strcmp(v->name, name) == 0)
            return v;
    if (!create || m->view_count == VIEWS_MAX)
        return NULL;
    view *v = &m->views[m->view_count++];
    *v = (view){.model = model};
    put_safe(v->name, sizeof v->name, name, strlen(name));
    return v;
}

/* Closes the connection before the message is acknowledged, so that the broker sends it again. */
static void disconnect_to_retry(sfp__mqtt *m, const char *why)
{
    if (!m->refused)
        log_message(m, SFP_LOG_WARNING, "an image cannot be stored now; the broker will send it again", why);
    m->refused = m->loss_logged = true;
    (void)shutdown(mosquitto_socket(m->client), SHUT_RDWR);
}

static void handle_image(sfp__mqtt *m, const topic *t, const char *name, const void *bytes, size_t n)
{
    OWNED_BY(sfp__text_done) sfp__text answer = {0};
    char view_name[NAME_BYTES], label[LABEL_BYTES], key[80];
    uint64_t id = 0;
    bool repeated = false, unreadable = false;
    sfp_error err = {0};
    read_levels(t, name, view_name, label, sizeof label);
    const sfp__digest digest = sfp__digest_bytes(sfp__digest_bytes((sfp__digest){0}, name, strlen(name)), bytes, n);
    (void)snprintf(key, sizeof key, "mqtt:%016llx%016llx", (unsigned long long)digest.word[0],
                   (unsigned long long)digest.word[1]);
    const sfp__received_image in = {.bytes = bytes, .size = n, .label = *label ? label : NULL, .key = key};
    sfp_status status = (int64_t)n > m->opt->max_body
                            ? sfp__fail(&err, SFP_EINVAL, "it has %zu bytes, more than allowed (--max-body)", n)
                            : sfp__submit_image(sfp__server_model(m->server, t->model), sfp__server_events(m->server), &in, &id,
                                                &repeated, &unreadable, &answer, &err);
    if (status && !unreadable && status != SFP_EINVAL && status != SFP_EUNSUPPORTED) {
        disconnect_to_retry(m, err.message);
        return;
    }
    m->refused = false;
    if (status && !m->unreadable && status != SFP_EUNSUPPORTED) {
        char shown[128];
        char what[256];
        (void)snprintf(what, sizeof what, "a message on topic %s is ignored; this is not reported again for others",
                       sfp__printable(name, shown, sizeof shown));
        log_message(m, SFP_LOG_WARNING, what, err.message);
        m->unreadable = true;
    }
    view *v = status || *label ? NULL : find_view(m, t->model, view_name, true);
    if (!v)
        return;
    replace_text(&v->type, n > 3 && *(const uint8_t *)bytes == 0xff ? "image/jpeg"
                           : n > 3 && *(const char *)bytes == 'R'   ? "image/webp"
                                                                    : "image/png");
    if (!v->announced) {
        m->classes_checked_at = 0;
        update_classes(m);
        announce(m, v);
    }
    if (!repeated || v->shown_at == 0) /* 0: after a restart, a retained image can be labelled again */
        show_image(m, v, id, bytes, n);
    if (!repeated)
        count_answer(m, v, id, answer.s);
}

/* Labels the published image of a view. The topic is streamfp/MODEL/VIEW/label/set. */
static void handle_label(sfp__mqtt *m, const char *name, const char *payload, size_t n)
{
    sfp_error err = {0};
    char label[LABEL_BYTES], expected[TOPIC_BYTES];
    for (view *v = m->views; v < m->views + m->view_count; v++) {
        view_topic(m, v, "label/set", expected);
        if (strcmp(name, expected) != 0 || n == 0 || n >= sizeof label)
            continue;
        (void)snprintf(label, sizeof label, "%.*s", (int)n, payload);
        sfp__model *model = sfp__server_model(m->server, v->model);
        sfp_status status = v->shown_at > 0 ? sfp_run_label(sfp__model_run(model), v->shown, label, &err)
                                            : sfp__fail(&err, SFP_ENOTFOUND, "no image was published since the start");
        if (status) {
            log_message(m, SFP_LOG_WARNING, "a label was not accepted", err.message);
            return;
        }
        /* so the next image is published at once; until it arrives, the label of this one can be corrected */
        v->shown_at = sfp__monotonic_seconds() - shown_seconds;
        publish_view(m, v, "label", label, strlen(label));
        sfp__model_watch(model, v->shown);
        sfp__events_sample(sfp__server_events(m->server), model, v->shown);
        return;
    }
}

static void on_message(struct mosquitto *client, void *ctx, const struct mosquitto_message *message)
{
    sfp__mqtt *m = ctx;
    bool matches = false;
    size_t n = message->payloadlen > 0 ? (size_t)message->payloadlen : 0;
    (void)client;
    (void)mosquitto_topic_matches_sub(LABELS, message->topic, &matches);
    if (matches && !message->retain)
        handle_label(m, message->topic, message->payload, n);
    for (const topic *t = m->topics; !matches && t < m->topics + m->topic_count; t++) {
        (void)mosquitto_topic_matches_sub(t->pattern, message->topic, &matches);
        if (matches && n > 0) /* an empty message only removes a retained one */
            handle_image(m, t, message->topic, message->payload, n);
    }
}

static void on_connect(struct mosquitto *client, void *ctx, int code)
{
    sfp__mqtt *m = ctx;
    m->connected = code == 0;
    if (code) {
        if (!m->loss_logged)
            log_message(m, SFP_LOG_WARNING, "the broker refuses the connection", mosquitto_connack_string(code));
        m->loss_logged = true;
        return;
    }
    if (m->loss_logged && !m->refused)
        log_message(m, SFP_LOG_INFO, "connected again", "");
    m->loss_logged = false;
    for (int i = 0; i < m->topic_count; i++)
        (void)mosquitto_subscribe(client, NULL, m->topics[i].pattern, 1);
    (void)mosquitto_subscribe(client, NULL, LABELS, 1);
    publish_all(m);
}

/* ------------------------------------------------------------------------- thread */

static bool all_ready(const sfp__mqtt *m)
{
    for (int i = 0; i < m->opt->model_count; i++)
        if (!sfp__model_ready(sfp__server_model(m->server, i)))
            return false;
    return true;
}

static void sleep_unless_stopped(const sfp__mqtt *m, double seconds)
{
    double until = sfp__monotonic_seconds() + seconds;
    while (!atomic_load(&m->stop) && sfp__monotonic_seconds() < until)
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void *work(void *arg)
{
    enum { LOOP_MS = 200 };
    sfp__mqtt *m = arg;
    double wait = first_wait;
    while (!atomic_load(&m->stop) && !all_ready(m))
        sleep_unless_stopped(m, first_wait);
    while (!atomic_load(&m->stop)) {
        m->connected = false;
        int code = mosquitto_connect_async(m->client, m->host, m->port, KEEPALIVE);
        while (code == MOSQ_ERR_SUCCESS && !atomic_load(&m->stop)) {
            code = mosquitto_loop(m->client, LOOP_MS, 1);
            if (m->connected)
                update_classes(m);
        }
        if (atomic_load(&m->stop))
            break;
        wait = m->connected && !m->refused ? first_wait : fmin(2 * wait, longest_wait);
        if (!m->loss_logged && !m->refused)
            log_message(m, SFP_LOG_WARNING, "no connection to the broker; trying again", mosquitto_strerror(code));
        m->loss_logged = true;
        sleep_unless_stopped(m, wait);
    }
    if (m->connected) {
        publish(m, AVAILABLE, "offline", 7);
        (void)mosquitto_disconnect(m->client);
        for (int i = 0; i < 50 && mosquitto_loop(m->client, 20, 1) == MOSQ_ERR_SUCCESS;)
            i++;
    }
    return NULL;
}

static sfp_status make_client(sfp__mqtt *m, sfp_error *err)
{
    char host[128] = "", id[192];
    char *dir = realpath(m->opt->dirs[0], NULL);
    const char *where = dir ? dir : m->opt->dirs[0];
    const sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, where, strlen(where));
    free(dir);
    (void)gethostname(host, sizeof host - 1);
    /* the same id after a restart, so that the broker continues the session */
    (void)snprintf(id, sizeof id, "streamfp-%s-%016llx", host, (unsigned long long)digest.word[0]);
    m->client = mosquitto_new(id, false, m);
    bool good =
        m->client &&
        mosquitto_threaded_set(m->client, true) == MOSQ_ERR_SUCCESS && /* else libmosquitto acknowledges before on_message */
        mosquitto_will_set(m->client, AVAILABLE, 7, "offline", 1, true) == MOSQ_ERR_SUCCESS &&
        (!m->user || mosquitto_username_pw_set(m->client, m->user, m->password) == MOSQ_ERR_SUCCESS);
    if (!good)
        return sfp__fail_nomem(err);
    mosquitto_connect_callback_set(m->client, on_connect);
    mosquitto_message_callback_set(m->client, on_message);
    return SFP_OK;
}

sfp_status sfp__mqtt_open(sfp__server *s, const sfp__serve_options *opt, sfp__mqtt **out, sfp_error *err)
{
    if (!opt->mqtt)
        return SFP_OK;
    (void)mosquitto_lib_init();
    TRY(sfp__alloc(out, 1, sizeof **out, err));
    sfp__mqtt *m = *out;
    m->server = s;
    m->opt = opt;
    TRY(read_options(m, err));
    return make_client(m, err);
}

sfp_status sfp__mqtt_start(sfp__mqtt *m, sfp_error *err)
{
    if (!m)
        return SFP_OK;
    m->runs = pthread_create(&m->thread, NULL, work, m) == 0;
    return m->runs ? SFP_OK : sfp__fail(err, SFP_ELIMIT, "cannot start the thread of mqtt");
}

void sfp__mqtt_close(sfp__mqtt *m)
{
    if (!m)
        return;
    atomic_store(&m->stop, true);
    if (m->runs)
        pthread_join(m->thread, NULL);
    mosquitto_destroy(m->client);
    (void)mosquitto_lib_cleanup();
    for (int i = 0; i < m->topic_count; i++)
        sfp__free(m->topics[i].pattern);
    for (view *v = m->views; v < m->views + m->view_count; v++) {
        for (int i = 0; i < VOTES_MAX; i++)
            sfp__free(v->votes[i]);
        sfp__free(v->state);
        sfp__free(v->attributes);
        sfp__free(v->type);
    }
    for (int i = 0; i < SFP__SERVE_MODELS_MAX; i++)
        sfp__text_done(&m->classes[i]);
    sfp__free(m->host);
    sfp__free(m->user);
    sfp__free(m->password);
    sfp__free(m);
}
#else
sfp_status sfp__mqtt_open(sfp__server *s, const sfp__serve_options *opt, sfp__mqtt **out, sfp_error *err)
{
    (void)s, (void)out;
    return opt->mqtt
               ? sfp__fail_key(err, "mqtt", SFP_EUNSUPPORTED,
                               "mqtt is '%.80s', which this build cannot use without libmosquitto; install libmosquitto-dev and "
                               "build again",
                               opt->mqtt)
               : SFP_OK;
}

sfp_status sfp__mqtt_start(sfp__mqtt *m, sfp_error *err)
{
    (void)m, (void)err;
    return SFP_OK;
}

void sfp__mqtt_close(sfp__mqtt *m)
{
    (void)m;
}
#endif

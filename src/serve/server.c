/* The web server, on libmicrohttpd. Its thread only transfers bytes: it reads a request, passes it to a worker, and sends the reply. A slow
 * client therefore occupies a connection and memory for its request, but never a worker.
 *
 * A connection is closed if a request or its reply takes too long. If there are many connections, the one that has been idle longest is
 * closed when a new one arrives. The file is long because connections, requests, workers and shutdown share one state. */
#include "serve/internal.h"

#include "base/monotonic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS_MAX = 256, QUEUE_MAX = 1024, HEADER_BYTES = 32768, TOKEN_MAX = 4096 };
static const double request_seconds = 60, reply_seconds = 60, reply_rate = 50000, idle_seconds = 1, tick_seconds = 0.5,
                    stalled_seconds = 300;
static const int64_t bodies_max = INT64_C(256) << 20; /* bytes of all requests that are being read or served */

typedef enum client_phase { READING, WORKING, SENDING, STREAMING } client_phase;

/* A connection, with the time in its phase, which is limited. */
typedef struct client {
    struct client *next, **at; /* at: the pointer to this client in the list */
    int fd;
    client_phase phase;
    double since, limit; /* when the phase began, and how many seconds it may take */
} client;

struct sfp__server {
    const sfp__serve_options *opt;
    struct MHD_Daemon *daemon;
    int listener;
    bool local;     /* other machines cannot connect */
    bool is_socket; /* a Unix socket */
    int model_count;
    sfp__model *models[SFP__SERVE_MODELS_MAX];
    struct sfp__events *events;
    sfp__mqtt *mqtt; /* NULL: none */
    double began;
    char token[TOKEN_MAX];
    size_t token_length;  /* 0: no token */
    pthread_mutex_t lock; /* guards the token and the members below, but not the atomic ones */
    pthread_cond_t work;
    sfp__request *first, *last;
    int waiting, busy;
    bool ending;
    client *clients;
    int client_count;
    pthread_t workers[WORKERS_MAX];
    int worker_count;
    atomic_llong bodies; /* bytes of all bodies in memory; at most bodies_max */
    atomic_ullong requests, refused;
};

/* --------------------------------------------------------------------- access */

int sfp__server_models(const sfp__server *s)
{
    return s->model_count;
}

sfp__model *sfp__server_model(const sfp__server *s, int i)
{
    return s->models[i];
}

sfp__model *sfp__server_find(const sfp__server *s, const char *name)
{
    for (int i = 0; i < s->model_count; i++)
        if (strcmp(sfp__model_name(s->models[i]), name) == 0)
            return s->models[i];
    return NULL;
}

struct sfp__events *sfp__server_events(const sfp__server *s)
{
    return s->events;
}

void sfp__server_get(const sfp__server *server, sfp__server_stats *out)
{
    sfp__server *s = (sfp__server *)server;
    pthread_mutex_lock(&s->lock);
    out->connections = s->client_count;
    pthread_mutex_unlock(&s->lock);
    out->requests = atomic_load(&s->requests);
    out->refused = atomic_load(&s->refused);
    out->seconds = sfp__monotonic_seconds() - s->began;
}

/* ------------------------------------------------------------------- requests */

typedef struct param_search {
    const char *name, *found;
    int left;
} param_search;

static enum MHD_Result match_param(void *ctx, enum MHD_ValueKind kind, const char *key, const char *value)
{
    param_search *s = ctx;
    (void)kind;
    if (strcmp(key, s->name) != 0 || s->left-- > 0)
        return MHD_YES;
    s->found = value ? value : "";
    return MHD_NO;
}

char *sfp__request_param(const sfp__request *r, const char *name, int i)
{
    param_search s = {.name = name, .left = i};
    (void)MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, match_param, &s);
    char *value = s.found ? sfp__decode_param(s.found) : NULL;
    return s.found && !value ? sfp__strdup("\xff") : value; /* malformed: no function accepts this text */
}

sfp_status sfp__request_int(const sfp__request *r, const char *name, int64_t low, int64_t high, int64_t *out, sfp_error *err)
{
    OWNED char *text = sfp__request_param(r, name, 0);
    int64_t n;
    if (!text)
        return SFP_OK;
    if (!sfp__parse_int(text, &n) || n < low || n > high)
        return sfp__fail_key(err, name, SFP_EINVAL, "%s is '%.40s', expected a whole number from %lld to %lld", name, text,
                             (long long)low, (long long)high);
    *out = n;
    return SFP_OK;
}

const char *sfp__request_header(const sfp__request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

sfp_status sfp__request_json(const sfp__request *r, sfp__json_value **out, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__json_parse("body", r->body.s ? r->body.s : "", r->body.length, &root, err));
    if (!sfp__json_is(root, SFP__JSON_OBJECT))
        return sfp__fail(err, SFP_EINVAL, "the body is %s, expected a JSON object", sfp__json_type_name(root));
    *out = TAKE(root);
    return SFP_OK;
}

void sfp__reply_header(sfp__request *r, const char *name, const char *value)
{
    if (r->header_count < SFP__REPLY_HEADERS) {
        r->headers[r->header_count].name = name;
        (void)snprintf(r->headers[r->header_count++].value, sizeof r->headers->value, "%s", value);
    }
}

void sfp__reply_error(sfp__request *r, int status, const char *code, const char *message)
{
    sfp__json j = {.text = &r->reply};
    sfp__text_done(&r->reply);
    r->header_count = 0;
    r->status = status;
    r->type = NULL;
    sfp__json_object(&j, NULL);
    if (r->oip) {
        sfp__json_string(&j, "error", message);
    } else {
        sfp__json_object(&j, "error");
        sfp__json_string(&j, "code", code);
        sfp__json_string(&j, "message", message);
    }
    sfp__json_end_all(&j);
    if (status == 503 || status == 429)
        sfp__reply_header(r, "Retry-After", "1");
}

void sfp__reply_status(sfp__request *r, sfp_status status, const sfp_error *err)
{
    static const struct {
        sfp_status status;
        int http;
        const char *code;
    } table[] = {{SFP_EINVAL, 400, "invalid"},        {SFP_EFORMAT, 400, "malformed"}, {SFP_ENOTFOUND, 404, "not_found"},
                 {SFP_EUNSUPPORTED, 409, "conflict"}, {SFP_ELIMIT, 503, "busy"},       {SFP_ECANCELLED, 503, "not_ready"},
                 {SFP_ENOMEM, 503, "no_memory"},      {SFP_EIO, 507, "not_stored"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status) {
            sfp__reply_error(r, table[i].http, table[i].code, err->message);
            return;
        }
    sfp__reply_error(r, 500, "internal", err->message);
}

static void free_request(sfp__request *r)
{
    if (!r)
        return;
    atomic_fetch_sub(&r->server->bodies, (long long)r->budget);
    if (r->file >= 0)
        (void)close(r->file);
    sfp__text_done(&r->body);
    sfp__text_done(&r->reply);
    sfp__free(r->text);
    sfp__free((char *)r->path);
    sfp__free(r);
}

/* -------------------------------------------------------------------- workers */

static void serve_request(sfp__request *r)
{
    sfp_error err = {0};
    sfp_status status = r->route->handler(r, &err);
    if (!status && r->reply.failed)
        status = sfp__fail_nomem(&err);
    if (status) {
        if (r->file >= 0)
            (void)close(r->file);
        r->file = -1;
        sfp__reply_status(r, status, &err);
    }
    r->done = true;
}

static void *work(void *arg)
{
    sfp__server *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->ending)
            pthread_cond_wait(&s->work, &s->lock);
        sfp__request *r = s->first;
        if (!r)
            break;
        s->first = r->next;
        if (!s->first)
            s->last = NULL;
        s->waiting--;
        s->busy++;
        pthread_mutex_unlock(&s->lock);
        serve_request(r);
        MHD_resume_connection(r->connection);
        pthread_mutex_lock(&s->lock);
        s->busy--;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Queues a request for the workers and suspends its connection until the reply is ready. false: too many requests wait. */
static bool enqueue(sfp__server *s, sfp__request *r)
{
    pthread_mutex_lock(&s->lock);
    bool taken = s->waiting < QUEUE_MAX && !s->ending;
    if (taken) {
        MHD_suspend_connection(r->connection);
        r->next = NULL;
        if (s->last)
            s->last->next = r;
        else
            s->first = r;
        s->last = r;
        s->waiting++;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return taken;
}

/* ---------------------------------------------------------------- connections */

static client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void set_phase(sfp__server *s, struct MHD_Connection *connection, client_phase phase, double limit)
{
    client *c = client_of(connection);
    pthread_mutex_lock(&s->lock);
    if (c && c->phase != phase) {
        c->phase = phase;
        c->since = sfp__monotonic_seconds();
        c->limit = limit;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Closes the connection that has waited longest for its next request. The lock is held. */
static void close_idle(sfp__server *s, double now)
{
    client *oldest = NULL;
    for (client *c = s->clients; c; c = c->next)
        if (c->phase == READING && c->fd >= 0 && now - c->since >= idle_seconds && (!oldest || c->since < oldest->since))
            oldest = c;
    if (oldest) {
        (void)shutdown(oldest->fd, SHUT_RDWR);
        oldest->since = now;
    }
}

static void on_connection(void *ctx, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    sfp__server *s = ctx;
    client *c = *socket_context;
    pthread_mutex_lock(&s->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED && (c = sfp__calloc(1, sizeof *c))) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *c = (client){.next = s->clients,
                      .at = &s->clients,
                      .fd = info ? info->connect_fd : -1,
                      .since = sfp__monotonic_seconds(),
                      .limit = request_seconds};
        if (c->next)
            c->next->at = &c->next;
        s->clients = c;
        *socket_context = c;
        if (++s->client_count > s->opt->max_connections * 3 / 4)
            close_idle(s, c->since);
    } else if (code == MHD_CONNECTION_NOTIFY_CLOSED && c) {
        *c->at = c->next;
        if (c->next)
            c->next->at = c->at;
        s->client_count--;
        *socket_context = NULL;
        sfp__free(c);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Closes connections whose requests or replies take too long. */
static void close_slow(sfp__server *s)
{
    double now = sfp__monotonic_seconds();
    pthread_mutex_lock(&s->lock);
    for (client *c = s->clients; c; c = c->next)
        if ((c->phase == READING || c->phase == SENDING) && c->fd >= 0 && now - c->since > c->limit) {
            (void)shutdown(c->fd, SHUT_RDWR);
            c->since = now;
        }
    /* on_connection also closes idle connections, but at the limit no connection is accepted, so it is not called */
    for (int n = s->client_count - s->opt->max_connections * 3 / 4; n > 0; n--)
        close_idle(s, now);
    pthread_mutex_unlock(&s->lock);
}

/* -------------------------------------------------------------- access control */

/* Compares in constant time, so that the time does not reveal how many characters are right. */
static bool is_token(sfp__server *s, const char *given)
{
    size_t n = strlen(given);
    pthread_mutex_lock(&s->lock);
    volatile unsigned different = (unsigned)(n != s->token_length);
    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)given[i] ^ (unsigned char)s->token[i < s->token_length ? i : 0];
    pthread_mutex_unlock(&s->lock);
    return different == 0;
}

/* Whether this is a name of the local machine. This check prevents DNS rebinding: a web site whose name resolves to 127.0.0.1 sends its own name
 * as Host. */
static bool is_local_host(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (!host[n] || host[n] == ':'))
            return true;
    }
    return strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.:")] == '\0';
}

/* Whether the request may be processed. If not, writes the error reply. */
static bool is_allowed(sfp__server *s, sfp__request *r)
{
    const char *origin = sfp__request_header(r, "Origin"), *host = sfp__request_header(r, "Host"),
               *given = sfp__request_header(r, "Authorization");
    const char *site = origin ? strstr(origin, "://") : NULL;
    if (origin && (!site || !host || strcasecmp(site + 3, host) != 0)) {
        sfp__reply_error(r, 403, "forbidden", "requests of other web sites are refused");
        return false;
    }
    if (!s->opt->token_file) {
        if (s->is_socket || (host && is_local_host(host)))
            return true;
        sfp__reply_error(r, 403, "forbidden",
                         "the Host of the request is not localhost or a loopback address; other names need --token-file");
        return false;
    }
    if (r->route->open || (given && strncasecmp(given, "Bearer ", 7) == 0 && is_token(s, given + 7)))
        return true;
    sfp__reply_error(r, 401, "unauthorized",
                     "the request has no token, or a wrong one; send the header Authorization: Bearer TOKEN");
    sfp__reply_header(r, "WWW-Authenticate", "Bearer");
    return false;
}

static sfp_status read_token(sfp__server *s, sfp_error *err)
{
    char text[TOKEN_MAX] = "";
    if (!s->opt->token_file)
        return SFP_OK;
    FILE *f = fopen(s->opt->token_file, "re");
    if (!f)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", s->opt->token_file);
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    n = strcspn(text, "\r\n");
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            n = 0;
    if (n < 16)
        return sfp__fail(err, SFP_EINVAL,
                         "%s: the token is shorter than 16 characters or has a blank, expected one line of letters and digits",
                         s->opt->token_file);
    pthread_mutex_lock(&s->lock);
    memcpy(s->token, text, sizeof s->token);
    s->token_length = n;
    pthread_mutex_unlock(&s->lock);
    return SFP_OK;
}

/* ---------------------------------------------------------------- the web server */

static enum MHD_Result send_reply(sfp__server *s, sfp__request *r)
{
    struct MHD_Response *response;
    struct stat st = {0};
    double bytes = (double)r->reply.length;
    if (r->events && r->status == 200) {
        response = sfp__events_subscribe(s->events, r);
        if (!response)
            sfp__reply_error(r, 503, "busy", "too many streams of events are open");
    } else {
        response = NULL;
    }
    bool streams = response != NULL;
    if (!response && r->file >= 0 && fstat(r->file, &st) == 0) {
        response = MHD_create_response_from_fd64((uint64_t)st.st_size, r->file);
        bytes = (double)st.st_size;
        if (response)
            r->file = -1;
    }
    if (!response) {
        response = MHD_create_response_from_buffer(r->reply.length, r->reply.s ? r->reply.s : "", MHD_RESPMEM_PERSISTENT);
        /* not copied: the request exists until its reply is sent */
    }
    if (!response)
        return MHD_NO;
    (void)MHD_add_response_header(response, "Content-Type", r->type ? r->type : "application/json");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    bool cached = false;
    for (int i = 0; i < r->header_count; i++) {
        (void)MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
        cached |= strcmp(r->headers[i].name, "Cache-Control") == 0;
    }
    if (!cached)
        (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    if (r->refused && !r->received)
        (void)MHD_add_response_header(response, "Connection", "close");
    set_phase(s, r->connection, streams ? STREAMING : SENDING, reply_seconds + bytes / reply_rate);
    enum MHD_Result result = MHD_queue_response(r->connection, (unsigned)r->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(sfp__server *s, sfp__request *r)
{
    r->refused = true;
    atomic_fetch_add(&s->refused, 1);
    return send_reply(s, r);
}

/* Called when the header of a request has arrived. */
static enum MHD_Result begin_request(sfp__server *s, sfp__request *r)
{
    const char *length = sfp__request_header(r, "Content-Length");
    int64_t size = 0;
    set_phase(s, r->connection, WORKING, 0);
    set_phase(s, r->connection, READING, request_seconds);
    atomic_fetch_add(&s->requests, 1);
    if (!sfp__route_find(r) || !is_allowed(s, r))
        return refuse(s, r);
    if (length && (!sfp__parse_int(length, &size) || size > s->opt->max_body)) {
        char text[128];
        (void)snprintf(text, sizeof text, "the body has %.20s bytes, expected at most %lld", length, (long long)s->opt->max_body);
        sfp__reply_error(r, 413, "too_large", text);
        return refuse(s, r);
    }
    return MHD_YES;
}

static void append_body(sfp__server *s, sfp__request *r, const char *data, size_t n)
{
    if (r->refused)
        return;
    r->budget += n;
    if (atomic_fetch_add(&s->bodies, (long long)n) + (long long)n > bodies_max)
        sfp__reply_error(r, 503, "busy", "too many bytes of requests wait to be served");
    else if ((int64_t)(r->body.length + n) > s->opt->max_body)
        sfp__reply_error(r, 413, "too_large", "the body is longer than allowed (--max-body)");
    else
        sfp__text_putn(&r->body, data, n);
    if (r->body.failed)
        sfp__reply_error(r, 503, "no_memory", "there is no memory for the body");
    r->refused = r->status >= 400;
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **request)
{
    sfp__server *s = ctx;
    sfp__request *r = *request;
    (void)version;
    if (!r) {
        r = sfp__calloc(1, sizeof *r);
        if (!r)
            return MHD_NO;
        *r = (sfp__request){.server = s, .connection = connection, .method = method, .path = sfp__strdup(url), .file = -1};
        *request = r;
        return r->path ? begin_request(s, r) : MHD_NO;
    }
    if (*upload_size > 0) {
        append_body(s, r, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    r->received = true;
    if (r->refused)
        return refuse(s, r);
    if (r->done)
        return send_reply(s, r);
    set_phase(s, connection, WORKING, 0);
    if (enqueue(s, r))
        return MHD_YES;
    sfp__reply_error(r, 503, "busy", "too many requests wait to be served");
    return refuse(s, r);
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **request, enum MHD_RequestTerminationCode code)
{
    sfp__server *s = ctx;
    (void)code;
    set_phase(s, connection, READING, request_seconds);
    free_request(*request);
    *request = NULL;
}

/* Leaves names and values as they are: routes.c decodes them. */
static size_t keep_encoded(void *ctx, struct MHD_Connection *connection, char *text)
{
    (void)ctx;
    (void)connection;
    return strlen(text);
}

/* ------------------------------------------------------------------- the socket */

static sfp_status fail_listen(const char *where, sfp_error *err)
{
    return sfp__fail_errno(err, SFP_EIO, "%s: cannot listen", where);
}

/* Removes a Unix socket on which no process listens. Any other file is kept. */
static void remove_stale(const struct sockaddr_un *a)
{
    struct stat st;
    int fd = lstat(a->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED)
        (void)unlink(a->sun_path);
    if (fd >= 0)
        (void)close(fd);
}

static sfp_status listen_unix(sfp__server *s, const char *path, sfp_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s", path) >= (int)sizeof a.sun_path)
        return sfp__fail_key(err, "socket", SFP_EINVAL, "socket is longer than %zu bytes", sizeof a.sun_path - 1);
    remove_stale(&a);
    s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117); /* only owner and group may connect */
    int failed = s->listener < 0 || bind(s->listener, (struct sockaddr *)&a, sizeof a) != 0;
    (void)umask(before);
    s->local = true;
    s->is_socket = !failed; /* stop_web then removes it */
    return failed || listen(s->listener, SOMAXCONN) != 0 ? fail_listen(path, err) : SFP_OK;
}

/* Listens on ADDRESS:PORT or [ADDRESS]:PORT. */
static sfp_status listen_tcp(sfp__server *s, const char *where, sfp_error *err)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    char host[64];
    int64_t port;
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    bool six = n > 2 && where[0] == '[' && where[n - 1] == ']';
    bool good = colon && n < sizeof host && sfp__parse_int(colon + 1, &port) && port >= 0 && port <= 65535;
    if (good) {
        (void)snprintf(host, sizeof host, "%.*s", (int)(six ? n - 2 : n), where + six);
        a.any.sa_family = six ? AF_INET6 : AF_INET;
        if (strcmp(host, "localhost") == 0)
            (void)snprintf(host, sizeof host, "127.0.0.1");
        good = inet_pton(a.any.sa_family, host, six ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr) == 1;
    }
    if (!good)
        return sfp__fail_key(err, "listen", SFP_EINVAL,
                             "listen is '%.80s', expected ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080", where);
    if (six)
        a.v6.sin6_port = htons((uint16_t)port);
    else
        a.v4.sin_port = htons((uint16_t)port);
    s->local = six ? IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) : ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    s->listener = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    if (s->listener >= 0)
        (void)setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return s->listener < 0 || bind(s->listener, &a.any, six ? sizeof a.v6 : sizeof a.v4) != 0 ||
                   listen(s->listener, SOMAXCONN) != 0
               ? fail_listen(where, err)
               : SFP_OK;
}

static void get_address(const sfp__server *s, char *out, size_t size)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    socklen_t length = sizeof a;
    char host[64] = "";
    if (s->is_socket || getsockname(s->listener, &a.any, &length) != 0) {
        (void)snprintf(out, size, "unix:%s", s->opt->socket);
        return;
    }
    bool six = a.any.sa_family == AF_INET6;
    (void)inet_ntop(a.any.sa_family, six ? (const void *)&a.v6.sin6_addr : (const void *)&a.v4.sin_addr, host, sizeof host);
    (void)snprintf(out, size, six ? "http://[%s]:%d" : "http://%s:%d", host, ntohs(six ? a.v6.sin6_port : a.v4.sin_port));
}

/* ----------------------------------------------------------------------- systemd */

/* Sends a state to systemd, as sd_notify(3) does; without NOTIFY_SOCKET, does nothing. */
static void notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path)
        return;
    memcpy(a.sun_path, path, strlen(path));
    if (path[0] == '@')
        a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&a,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    (void)close(fd);
}

/* ------------------------------------------------------------------ start and end */

typedef struct engine_job {
    const sfp__serve_options *opt;
    sfp_engine *engine;
    sfp_status status;
    sfp_error err;
} engine_job;

/* Opens the engine on a thread of low priority, which the threads of the engine inherit: they are used for learning. */
static void *open_engine(void *arg)
{
    engine_job *j = arg;
    sfp__serve_lower_priority();
    j->status = sfp_engine_open_for(j->opt->settings, j->opt->log, NULL, &j->engine, &j->err);
    return NULL;
}

static sfp_status open_models(sfp__server *s, sfp_engine **engine, sfp_error *err)
{
    engine_job job = {.opt = s->opt};
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_engine, &job) != 0)
        return sfp__fail(err, SFP_ELIMIT, "cannot start a thread");
    pthread_join(thread, NULL);
    *engine = job.engine;
    if (job.status)
        return sfp__fail_key(err, job.err.key, job.status, "%s", job.err.message);
    for (int i = 0; i < s->opt->model_count; i++) {
        TRY(sfp__model_open(*engine, s->opt, i, &s->models[i], err));
        s->model_count++;
    }
    for (int i = 0; i < s->model_count; i++)
        TRY(sfp__model_start(s->models[i], err));
    return SFP_OK;
}

static sfp_status start_web(sfp__server *s, sfp_error *err)
{
    for (; s->worker_count < s->opt->workers; s->worker_count++)
        if (pthread_create(&s->workers[s->worker_count], NULL, work, s) != 0)
            return sfp__fail(err, SFP_ELIMIT, "cannot start worker %d of %d", s->worker_count + 1, s->opt->workers);
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_LISTEN_SOCKET, s->listener, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)s->opt->max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)request_seconds,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
                                 on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_UNESCAPE_CALLBACK,
                                 keep_encoded, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return s->daemon ? SFP_OK : sfp__fail(err, SFP_ELIBRARY, "cannot start the web server");
}

static bool any_failed(sfp__server *s)
{
    for (int i = 0; i < s->model_count; i++) {
        sfp__model_status status;
        sfp__model_get(s->models[i], &status);
        if (status.failed)
            return true;
    }
    return false;
}

/* Runs until the service is stopped or a model fails. */
static void run_until_stopped(sfp__server *s)
{
    while (!atomic_load(s->opt->stop) && !any_failed(s)) {
        bool alive = true;
        sfp_error err;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(tick_seconds * 1e9)}, NULL);
        close_slow(s);
        sfp__events_tick(s);
        if (atomic_exchange(s->opt->hangup, 0) && read_token(s, &err))
            s->opt->log(NULL, SFP_LOG_WARNING, err.message);
        for (int i = 0; i < s->model_count; i++)
            alive = alive && sfp__monotonic_seconds() - sfp__model_heartbeat(s->models[i]) < stalled_seconds;
        if (alive)
            notify("WATCHDOG=1");
    }
}

/* Accepts no more requests, answers those that have begun, and closes the connections. */
static void stop_web(sfp__server *s)
{
    if (s->daemon) {
        MHD_socket listener = MHD_quiesce_daemon(s->daemon);
        s->listener = listener == MHD_INVALID_SOCKET ? s->listener : listener;
    }
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->worker_count; i++) /* workers end when the queue of requests is empty */
        pthread_join(s->workers[i], NULL);
    sfp__events_end(s->events);
    if (s->daemon) { /* gives finished replies one second to be sent */
        double until = sfp__monotonic_seconds() + 1;
        for (bool sending = true; sending && sfp__monotonic_seconds() < until;) {
            sending = false;
            pthread_mutex_lock(&s->lock);
            for (const client *c = s->clients; c; c = c->next)
                sending |= c->phase != READING;
            pthread_mutex_unlock(&s->lock);
            (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        MHD_stop_daemon(s->daemon);
    }
    if (s->listener >= 0)
        (void)close(s->listener);
    if (s->is_socket)
        (void)unlink(s->opt->socket);
}

static sfp_status serve(sfp__server *s, sfp_engine **engine, void (*ready)(const char *address), sfp_error *err)
{
    char address[PATH_MAX];
    TRY(s->opt->socket ? listen_unix(s, s->opt->socket, err) : listen_tcp(s, s->opt->listen, err));
    TRY(read_token(s, err));
    if (!s->local && s->token_length == 0)
        return sfp__fail_key(err, "listen", SFP_EINVAL,
                             "listen is '%s', which other machines can reach; expected a loopback address, or --token-file",
                             s->opt->listen);
    if (s->opt->sandbox)
        TRY(sfp__decoders_start(s->opt->log, err));
    TRY(sfp__mqtt_open(s, s->opt, &s->mqtt, err));
    TRY(open_models(s, engine, err));
    get_address(s, address, sizeof address);
    TRY(start_web(s, err));
    while (!sfp__serve_ready(s) && !any_failed(s) && !atomic_load(s->opt->stop))
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (sfp__serve_ready(s)) {
        TRY(sfp__mqtt_start(s->mqtt, err));
        ready(address);
        notify("READY=1");
    }
    run_until_stopped(s);
    notify("STOPPING=1");
    return SFP_OK;
}

sfp_status sfp__serve(const sfp__serve_options *opt, void (*ready)(const char *address), sfp_error *err)
{
    OWNED sfp__server *s = NULL;
    sfp_engine *engine = NULL;
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    s->opt = opt;
    s->listener = -1;
    s->began = sfp__monotonic_seconds();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    s->events = sfp__events_create();
    sfp_status status = s->events ? serve(s, &engine, ready, err) : sfp__fail_nomem(err);
    sfp__mqtt_close(s->mqtt);
    if (s->events)
        stop_web(s);
    for (int i = 0; i < s->model_count; i++)
        sfp__model_stop(s->models[i]);
    for (int i = 0; i < s->model_count; i++) {
        sfp_error why;
        sfp_status ended = sfp__model_close(s->models[i], &why);
        if (ended && !status)
            status = sfp__fail(err, ended, "%s", why.message);
    }
    sfp_engine_close(engine);
    sfp__decoders_stop();
    sfp__events_free(s->events);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    return status;
}

/* The table of routes. It selects the handler of a request; GET /openapi.json is generated from it. */
#include "serve/internal.h"

#include <stdio.h>
#include <sys/random.h>

#define IMAGE "image/*"
#define JSON "application/json"

#define LIMIT "limit integer 1 to 200"

/* To add a route, add a row here, and its handler. */
const sfp__route sfp__routes[] = {
    {"GET", "/", sfp__get_page, "The page of the service.", NULL, NULL, 200, true},
    {"GET", "/v1/models", sfp__get_models, "The models.", NULL, NULL, 200, false},
    {"GET", "P/status", sfp__get_status, "Counts, rates and warnings of the model.", NULL, NULL, 200, false},
    {"POST", "P/predict", sfp__post_predict, "Predicts one image, or several as multipart/form-data.",
     "box string left,top,right,bottom from 0 to 1; may be repeated;top integer number of classes in an answer", IMAGE, 200,
     false},
    {"POST", "P/samples", sfp__post_sample,
     "Adds a sample. With a label it is learned exactly once; without one it is predicted and waits for a label.",
     "label string its class;name string its name", IMAGE, 201, false},
    {"GET", "P/samples", sfp__get_samples, "Lists samples in order of their ids.",
     "standing string waiting, learned, dropped or unreadable;label string its class, empty for none;predicted string the class "
     "of its answer;"
     "after integer the last id of the previous page;limit integer 1 to 1000",
     NULL, 200, false},
    {"GET", "P/samples/{}", sfp__get_sample, "One sample.", NULL, NULL, 200, false},
    {"DELETE", "P/samples/{}", sfp__delete_sample, "Forgets a sample as if it had never been learned.",
     "again integer 1: the same image may be sent again later", NULL, 204, false},
    {"GET", "P/samples/{}/image", sfp__get_sample_image, "The image of a sample, or a thumbnail.",
     "size integer longer side of a thumbnail in pixels", NULL, 200, false},
    {"PUT", "P/samples/{}/label", sfp__put_label, "Gives a sample a label, or corrects it.", NULL, JSON, 200, false},
    {"GET", "P/queue", sfp__get_queue, "The unlabelled samples whose labels would teach most.", LIMIT, NULL, 200, false},
    {"GET", "P/suspects", sfp__get_suspects,
     "Learned samples that the model without them answers differently; with label or answer, all of these.",
     "label string the label;answer string the answer without the sample;" LIMIT, NULL, 200, false},
    {"GET", "P/classes", sfp__get_classes, "The classes with their samples, accuracy by leaving one out, and mix-ups.", NULL,
     NULL, 200, false},
    {"POST", "P/classes", sfp__post_class, "Adds a class before it has a sample.", NULL, JSON, 201, false},
    {"PATCH", "P/classes/{}", sfp__patch_class, "Renames a class, or merges it into another one.", NULL, JSON, 200, false},
    {"DELETE", "P/classes/{}", sfp__delete_class, "Forgets all samples of a class.", NULL, NULL, 204, false},
    {"GET", "P/state", sfp__get_state, "The learned state (safetensors).", NULL, NULL, 200, false},
    {"GET", "P/report", sfp__get_report, "The report of the run (HTML).", NULL, NULL, 200, false},
    {"POST", "P/checkpoint", sfp__post_checkpoint, "Writes a checkpoint now.", NULL, NULL, 200, false},
    {"POST", "P/pause", sfp__post_pause, "Pauses learning; samples are accepted and wait.", NULL, NULL, 200, false},
    {"POST", "P/resume", sfp__post_resume, "Resumes learning.", NULL, NULL, 200, false},
    {"GET", "P/events", sfp__get_events, "Server-sent events: sample, status.", NULL, NULL, 200, false},
    {"GET", "/metrics", sfp__get_metrics, "Metrics for Prometheus.", NULL, NULL, 200, false},
    {"GET", "/healthz", sfp__get_health, "The process answers.", NULL, NULL, 200, true},
    {"GET", "/readyz", sfp__get_ready, "All models accept samples and answer requests.", NULL, NULL, 200, true},
    {"GET", "/openapi.json", sfp__get_openapi, "This description.", NULL, NULL, 200, true},
    {"GET", "/v2", sfp__v2_server, "Open Inference Protocol: the server.", NULL, NULL, 200, false},
    {"GET", "/v2/health/live", sfp__v2_live, "Open Inference Protocol: the process answers.", NULL, NULL, 200, true},
    {"GET", "/v2/health/ready", sfp__v2_ready, "Open Inference Protocol: all models are ready.", NULL, NULL, 200, true},
    {"GET", "V", sfp__v2_model, "Open Inference Protocol: a model.", NULL, NULL, 200, false},
    {"GET", "V/ready", sfp__v2_model_ready, "Open Inference Protocol: is the model ready?", NULL, NULL, 200, false},
    {"POST", "V/infer", sfp__v2_infer, "Open Inference Protocol: predicts images of type BYTES.", NULL, JSON, 200, false},
};
const size_t sfp__route_count = sizeof sfp__routes / sizeof *sfp__routes;

/* --------------------------------------------------------------------- matching */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the %XX in n bytes; free with sfp__free. plus: '+' is a blank. NULL: malformed, contains a NUL, not UTF-8, or no memory. */
static char *decode(const char *s, size_t n, bool plus)
{
    char *out = sfp__malloc(n + 1);
    size_t k = 0;
    bool bad = !out;
    for (size_t i = 0; i < n && !bad; i++) {
        int c = plus && s[i] == '+' ? ' ' : (unsigned char)s[i];
        if (s[i] == '%') {
            int high = i + 2 < n ? hex(s[i + 1]) : -1, low = i + 2 < n ? hex(s[i + 2]) : -1;
            c = high < 0 || low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        bad = c == 0;
        out[k++] = (char)c;
    }
    if (out)
        out[k] = '\0';
    if (bad || !sfp__utf8_valid(out)) {
        sfp__free(out);
        return NULL;
    }
    return out;
}

char *sfp__decode_param(const char *s)
{
    return decode(s, strlen(s), true);
}

/* Whether the rest of a path matches a pattern. *part, *size: the text that "{}" stands for; NULL: the pattern has none. */
static bool matches(const char *pattern, const char *path, const char **part, size_t *size)
{
    size_t before = strcspn(pattern, "{");
    *part = NULL;
    if (!pattern[before])
        return strcmp(pattern, path) == 0;
    const char *after = pattern + before + 2;
    size_t n = strlen(path), end = strlen(after);
    if (n <= before + end || strncmp(pattern, path, before) != 0 || strcmp(path + n - end, after) != 0)
        return false;
    *part = path + before;
    *size = n - before - end;
    return !memchr(*part, '/', *size);
}

/* Returns the path after "/v1/models/M" or "/v1" (kind P), or after "/v2/models/M" and a version (kind V), and finds the model. NULL: the path
 * does not begin so. *model NULL: there is no such model. */
static const char *enter_model(const sfp__request *r, char kind, sfp__model **model)
{
    const char *path = r->path, *prefix = kind == 'P' ? "/v1/models/" : "/v2/models/";
    *model = NULL;
    if (strncmp(path, prefix, strlen(prefix)) == 0) {
        path += strlen(prefix);
        size_t n = strcspn(path, "/");
        OWNED char *name = decode(path, n, false);
        *model = name ? sfp__server_find(r->server, name) : NULL;
        path += n;
        if (kind == 'V' && strncmp(path, "/versions/", 10) == 0)
            path += 10 + strcspn(path + 10, "/");
        return path;
    }
    if (kind != 'P' || strncmp(path, "/v1", 3) != 0)
        return NULL;
    *model = sfp__server_models(r->server) == 1 ? sfp__server_model(r->server, 0) : NULL;
    return path + 3;
}

bool sfp__route_find(sfp__request *r)
{
    bool other_method = false, no_model = false;
    char allow[96] = "";
    r->oip = strncmp(r->path, "/v2", 3) == 0;
    for (size_t i = 0; i < sfp__route_count; i++) {
        const sfp__route *route = &sfp__routes[i];
        bool of_model = route->path[0] != '/';
        sfp__model *model = NULL;
        const char *path = of_model ? enter_model(r, route->path[0], &model) : r->path, *part;
        size_t size = 0;
        if (!path || !matches(route->path + of_model, path, &part, &size))
            continue;
        if (of_model && !model) {
            no_model = true;
            continue;
        }
        if (strcmp(route->method, r->method) != 0 && !(strcmp(r->method, "HEAD") == 0 && strcmp(route->method, "GET") == 0)) {
            size_t n = strlen(allow);
            (void)snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "", route->method);
            other_method = true;
            continue;
        }
        r->route = route;
        r->model = model;
        if (part && !(r->text = decode(part, size, false)))
            break;
        r->status = route->status;
        return true;
    }
    if (other_method && !r->route) {
        sfp__reply_error(r, 405, "method_not_allowed", "the path exists, but not with this method");
        sfp__reply_header(r, "Allow", allow);
    } else {
        sfp__reply_error(r, 404, "not_found",
                         no_model ? "there is no such model; with several models, name one: /v1/models/MODEL/..."
                                  : "there is no such path");
    }
    return false;
}

/* ---------------------------------------------------------------------- OpenAPI */

static void put_schema(sfp__json *j, const char *key, const char *type)
{
    sfp__json_object(j, key);
    sfp__json_string(j, "type", type);
    sfp__json_end(j);
}

static void put_param(sfp__json *j, const char *name, const char *in, const char *type, const char *text, bool required)
{
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", name);
    sfp__json_string(j, "in", in);
    sfp__json_bool(j, "required", required);
    if (text)
        sfp__json_string(j, "description", text);
    put_schema(j, "schema", type);
    sfp__json_end(j);
}

/* Writes the parameters of a route, given as "name type text;...". */
static void put_params(sfp__json *j, const char *list)
{
    for (const char *at = list; at && *at;) {
        char name[32], type[16], text[200];
        size_t n = strcspn(at, ";");
        while (at[n] == ';' && at[n + 1] == ' ') /* a ';' before a blank belongs to the text */
            n += 1 + strcspn(at + n + 1, ";");
        int used = 0;
        if (sscanf(at, "%31s %15s %n", name, type, &used) == 2) {
            (void)snprintf(text, sizeof text, "%.*s", (int)n - used, at + used);
            put_param(j, name, "query", type, text, false);
        }
        at += n + (at[n] == ';');
    }
}

/* Writes the path of a route as OpenAPI writes it, such as /v1/models/{model}/samples/{id}. */
static void put_path(const sfp__route *route, char *out, size_t size)
{
    const char *rest = route->path, *prefix = "";
    if (*rest == 'P' || *rest == 'V')
        prefix = *rest++ == 'P' ? "/v1/models/{model}" : "/v2/models/{model}";
    size_t n = strcspn(rest, "{");
    (void)snprintf(out, size, "%s%.*s%s%s", prefix, (int)n, rest, rest[n] ? strstr(rest, "classes") ? "{class}" : "{id}" : "",
                   rest[n] ? rest + n + 2 : "");
}

static void put_operation(sfp__json *j, const sfp__route *route, const char *path)
{
    char method[8], id[96];
    size_t n = 0;
    for (; route->method[n]; n++)
        method[n] = (char)(route->method[n] | 0x20);
    method[n] = '\0';
    (void)snprintf(id, sizeof id, "%s", method);
    for (const char *c = path; *c; c++) {
        size_t k = strlen(id);
        bool letter = hex(*c) >= 0 || (*c >= 'a' && *c <= 'z');
        if ((letter || (*c == '/' && id[k - 1] != '_')) && k + 1 < sizeof id) {
            id[k] = letter ? *c : '_';
            id[k + 1] = '\0';
        }
    }
    sfp__json_object(j, method);
    sfp__json_string(j, "operationId", id);
    sfp__json_string(j, "summary", route->summary);
    sfp__json_array(j, "parameters");
    if (strstr(path, "{model}"))
        put_param(j, "model", "path", "string",
                  "name of the model; with only one model, /v1/... without /models/{model} is the same", true);
    if (strstr(path, "{id}"))
        put_param(j, "id", "path", "integer", "id of the sample", true);
    if (strstr(path, "{class}"))
        put_param(j, "class", "path", "string", "name of the class", true);
    put_params(j, route->params);
    sfp__json_end(j);
    if (route->body) {
        sfp__json_object(j, "requestBody");
        sfp__json_bool(j, "required", true);
        sfp__json_object(j, "content");
        sfp__json_object(j, route->body);
        sfp__json_end(j);
        sfp__json_end(j);
        sfp__json_end(j);
    }
    char status[8];
    (void)snprintf(status, sizeof status, "%d", route->status);
    sfp__json_object(j, "responses");
    sfp__json_object(j, status);
    sfp__json_string(j, "description", "Success.");
    sfp__json_end(j);
    sfp__json_object(j, "default");
    sfp__json_string(j, "description", "An error.");
    sfp__json_raw(j, "content", "{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}");
    sfp__json_end(j);
    sfp__json_end(j);
    if (route->open)
        sfp__json_raw(j, "security", "[]");
    sfp__json_end(j);
}

sfp_status sfp__get_openapi(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__json j = {.text = &r->reply};
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "openapi", "3.0.3");
    sfp__json_object(&j, "info");
    sfp__json_string(&j, "title", "streamfp");
    sfp__json_string(&j, "version", sfp_version());
    sfp__json_string(&j, "description", "Models that learn from samples, predict images and accept corrections.");
    sfp__json_raw(&j, "license", "{\"name\":\"see LICENSE\"}");
    sfp__json_end(&j);
    sfp__json_raw(&j, "servers", "[{\"url\":\"/\"}]");
    sfp__json_raw(&j, "security", "[{\"token\":[]}]");
    sfp__json_object(&j, "paths");
    for (size_t i = 0; i < sfp__route_count; i++) {
        char path[128], other[128];
        bool first = true;
        put_path(&sfp__routes[i], path, sizeof path);
        for (size_t k = 0; k < i && first; k++) {
            put_path(&sfp__routes[k], other, sizeof other);
            first = strcmp(path, other) != 0;
        }
        if (!first) /* written with the first route of this path */
            continue;
        sfp__json_object(&j, path);
        for (size_t k = i; k < sfp__route_count; k++) {
            put_path(&sfp__routes[k], other, sizeof other);
            if (strcmp(path, other) == 0)
                put_operation(&j, &sfp__routes[k], path);
        }
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    sfp__json_raw(
        &j, "components",
        "{\"securitySchemes\":{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\"}},\"schemas\":{\"Error\":{\"type\":\"object\","
        "\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\",\"required\":[\"code\",\"message\"],"
        "\"properties\":{"
        "\"code\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}}}}}}");
    sfp__json_end_all(&j);
    return SFP_OK;
}

/* ------------------------------------------------------------------------- page */

__asm__(".pushsection .rodata.sfp_serve, \"a\"\n"
        ".local sfp_serve_page\n"
        "sfp_serve_page:\n"
        ".incbin \"" SFP_SERVE_PAGE "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char sfp_serve_page[] __attribute__((visibility("hidden")));

/* Each reply has a new random nonce in the tags <style> and <script>, so the browser uses no other style and runs no other script. */
sfp_status sfp__get_page(sfp__request *r, sfp_error *err)
{
    static const char *const tags[] = {"<style", "<script"};
    uint64_t random[2];
    char nonce[33], policy[512];
    const char *at = sfp_serve_page;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return sfp__fail_errno(err, SFP_EIO, "cannot get random bytes");
    (void)snprintf(nonce, sizeof nonce, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    for (int i = 0; i < 2; i++) {
        const char *tag = strstr(at, tags[i]);
        if (!tag)
            continue;
        tag += strlen(tags[i]);
        sfp__text_putn(&r->reply, at, (size_t)(tag - at));
        sfp__text_printf(&r->reply, " nonce=\"%s\"", nonce);
        at = tag;
    }
    sfp__text_put(&r->reply, at);
    r->type = "text/html; charset=utf-8";
    (void)snprintf(
        policy, sizeof policy,
        "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
        nonce, nonce);
    sfp__reply_header(r, "Content-Security-Policy", policy);
    return SFP_OK;
}

/* Results and their registry (streamfp.h, part 8). The public type sfp_result is the struct of results/result.h. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "io/file.h"
#include "results/registry.h"
#include "results/result.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

sfp_status sfp_result_read(const char *path, sfp_result **out, sfp_error *err)
{
    IN_LIBRARY;
    char file[PATH_MAX];
    struct stat st;
    OWNED sfp_result *r = NULL;
    SFP__REQUIRE(path && out, "path and out");
    bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    TRY(sfp__path_print(file, sizeof file, err, "%s%s", path, directory ? "/result.json" : ""));
    TRY(sfp__alloc(&r, 1, sizeof *r, err));
    TRY(sfp__result_read(file, r, err));
    *out = TAKE(r);
    return SFP_OK;
}

void sfp_result_free(sfp_result *r)
{
    sfp__result_done(r);
    sfp__free(r);
}

double sfp_result_number(const sfp_result *r, const char *key)
{
    return r && key ? sfp__result_number(r, key) : NAN;
}

const char *sfp_result_string(const sfp_result *r, const char *key)
{
    return r && key ? sfp__result_string(r, key) : NULL;
}

int sfp_result_tasks(const sfp_result *r)
{
    return r->tasks;
}

int sfp_result_classes(const sfp_result *r)
{
    return r->classes;
}

const char *sfp_result_task_name(const sfp_result *r, int task)
{
    return task >= 0 && task < r->tasks ? r->task_names[task] : NULL;
}

const char *sfp_result_class_name(const sfp_result *r, int label)
{
    return label >= 0 && label < r->classes ? r->class_names[label] : NULL;
}

double sfp_result_accuracy(const sfp_result *r, int after, int on)
{
    if (after < 0 || on < 0 || after >= r->tasks || on > after)
        return NAN;
    return r->accuracy[(size_t)after * (size_t)r->tasks + (size_t)on];
}

sfp_status sfp_result_json(const sfp_result *r, int one_line, char **out, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(r && out, "result and out");
    return sfp__result_text(r, one_line != 0, out, err);
}

/* ------------------------------------------------------------------------------------------------------------- registry */

sfp_status sfp_registry_list(int limit, char **json, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t};
    if (!json || limit < 0)
        return sfp__fail(err, SFP_EINVAL, "limit is %d, expected 0 or more; json must not be NULL", limit);
    TRY(sfp__registry_open_readonly(&registry, err));
    sfp__json_object(&j, NULL);
    TRY(sfp__registry_write(registry, limit, &j, err));
    sfp__json_end(&j);
    TRY(sfp__check_memory(!t.failed, err));
    *json = TAKE(t.s);
    return SFP_OK;
}

sfp_status sfp_registry_forget(const char *run, int *count, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__registry_close) sfp__registry *registry = NULL;
    TRY(sfp__registry_open_readonly(&registry, err));
    return sfp__registry_forget(registry, run, count, err);
}

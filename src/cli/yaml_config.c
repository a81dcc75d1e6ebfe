#include "cli/yaml_config.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { VALUE_MAX = 4096 };

/* A scalar as it is; a list of scalars joined by commas. */
static bool value_text(yaml_document_t *doc, const yaml_node_t *node, char *buf, size_t size)
{
    if (node->type == YAML_SCALAR_NODE) {
        size_t n = node->data.scalar.length;
        if (n >= size || memchr(node->data.scalar.value, 0, n))
            return false;
        memcpy(buf, node->data.scalar.value, n);
        buf[n] = 0;
        return true;
    }
    if (node->type != YAML_SEQUENCE_NODE)
        return false;
    size_t used = 0;
    buf[0] = 0;
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        const yaml_node_t *item = yaml_document_get_node(doc, *i);
        if (!item || item->type != YAML_SCALAR_NODE)
            return false;
        int n = snprintf(buf + used, size - used, "%s%s", used ? "," : "", (const char *)item->data.scalar.value);
        if (n < 0 || (size_t)n >= size - used)
            return false;
        used += (size_t)n;
    }
    return true;
}

static sfp_status take_mapping(const char *path, yaml_document_t *doc, const yaml_node_t *root, sfp_args *args, sfp_error *err)
{
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(doc, p->key), *value = yaml_document_get_node(doc, p->value);
        size_t line = key ? key->start_mark.line + 1 : 0;
        char text[VALUE_MAX], origin[VALUE_MAX];
        if (!key || !value || key->type != YAML_SCALAR_NODE)
            return sfp__fail(err, SFP_EFORMAT, "%s:%zu: expected 'option: value'", path, line);
        if (!value_text(doc, value, text, sizeof text))
            return sfp__fail(err, SFP_EFORMAT, "%s:%zu: '%s' is neither a value nor a list of values", path, line,
                             (const char *)key->data.scalar.value);
        (void)snprintf(origin, sizeof origin, "%s:%zu: %.200s", path, line, (const char *)key->data.scalar.value);
        sfp_status s = sfp__args_set(args, (const char *)key->data.scalar.value, text, SFP_RANK_FILE, origin, err);
        if (s)
            return strncmp(err->message, path, strlen(path)) == 0 ? s : sfp__fail_prefix(err, s, "%s:%zu", path, line);
    }
    return SFP_OK;
}

sfp_status sfp__yaml_config(const char *path, sfp_args *args, sfp_error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", path);
    yaml_parser_t parser;
    yaml_document_t doc;
    if (!yaml_parser_initialize(&parser)) {
        (void)fclose(f);
        return sfp__fail_nomem(err, sizeof parser);
    }
    yaml_parser_set_input_file(&parser, f);
    sfp_status s;
    if (!yaml_parser_load(&parser, &doc)) {
        s = sfp__fail(err, SFP_EFORMAT, "%s:%zu: %s", path, parser.problem_mark.line + 1, parser.problem ? parser.problem : "not YAML");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&doc);
        if (!root)
            s = SFP_OK; /* an empty file sets nothing */
        else if (root->type != YAML_MAPPING_NODE)
            s = sfp__fail(err, SFP_EFORMAT, "%s: expected a mapping of options to values", path);
        else
            s = take_mapping(path, &doc, root, args, err);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    (void)fclose(f);
    return s;
}

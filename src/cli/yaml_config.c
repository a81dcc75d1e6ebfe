#include "cli/command.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { VALUE_MAX = 4096 };

static sfp_status not_yaml(const char *path, const yaml_parser_t *parser, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s:%zu: %s", path, parser->problem_mark.line + 1,
                     parser->problem ? parser->problem : "not YAML");
}

/* Returns the text of a scalar. NULL: not a scalar, or it contains a zero byte, which would truncate it. */
static const char *scalar_text(const yaml_node_t *node)
{
    if (!node || node->type != YAML_SCALAR_NODE || memchr(node->data.scalar.value, 0, node->data.scalar.length))
        return NULL;
    return (const char *)node->data.scalar.value;
}

/* Writes a scalar, or a list of scalars separated by commas. */
static bool value_text(yaml_document_t *doc, const yaml_node_t *node, char *buf, size_t size)
{
    const char *text = scalar_text(node);
    if (text)
        return (size_t)snprintf(buf, size, "%s", text) < size;
    if (node->type != YAML_SEQUENCE_NODE)
        return false;
    size_t used = 0;
    buf[0] = 0;
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        if (!(text = scalar_text(yaml_document_get_node(doc, *i))))
            return false;
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i > node->data.sequence.items.start ? "," : "", text);
        if (used >= size)
            return false;
    }
    return true;
}

/* Returns the line of an earlier pair with that option, under either of its names; 0: not found. */
static size_t earlier_line(yaml_document_t *doc, const yaml_node_pair_t *first, const yaml_node_pair_t *pair, const char *name,
                           const sfp__args *args)
{
    for (const yaml_node_pair_t *p = first; p < pair; p++) {
        const yaml_node_t *key = yaml_document_get_node(doc, p->key);
        if (sfp__args_find(args, scalar_text(key)) == sfp__args_find(args, name)) /* earlier keys were scalars and known */
            return key->start_mark.line + 1;
    }
    return 0;
}

static sfp_status apply_mapping(const char *path, yaml_document_t *doc, const yaml_node_t *root, sfp__args *args, sfp_error *err)
{
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(doc, p->key), *value = yaml_document_get_node(doc, p->value);
        const char *name = scalar_text(key);
        size_t line = key ? key->start_mark.line + 1 : 0;
        char text[VALUE_MAX], origin[VALUE_MAX];
        if (!name || !value)
            return sfp__fail(err, SFP_EFORMAT, "%s:%zu: expected 'option: value'", path, line);
        size_t earlier = earlier_line(doc, root->data.mapping.pairs.start, p, name, args);
        if (earlier)
            return sfp__fail(err, SFP_EINVAL, "%s:%zu: '%.200s' is already set in line %zu", path, line, name, earlier);
        if (!value_text(doc, value, text, sizeof text))
            return sfp__fail(err, SFP_EFORMAT, "%s:%zu: value of '%.200s' is neither a scalar nor a list of scalars", path, line,
                             name);
        if (strcmp(name, "config") == 0)
            return sfp__fail(err, SFP_EINVAL, "%s:%zu: 'config' is not allowed in a configuration file", path, line);
        (void)snprintf(origin, sizeof origin, "%s:%zu: %.200s", path, line, name);
        sfp_status s = sfp__args_set(args, name, text, SFP_RANK_FILE, origin, err);
        if (s)
            return err->key[0] ? s : sfp__fail_prefix(err, s, "%s:%zu", path, line); /* an error about a value names its origin */
    }
    return SFP_OK;
}

/* Applies the only document of the file. */
static sfp_status apply_document(const char *path, yaml_parser_t *parser, sfp__args *args, sfp_error *err)
{
    OWNED_BY(yaml_document_delete) yaml_document_t doc = {0}, more = {0};
    if (!yaml_parser_load(parser, &doc))
        return not_yaml(path, parser, err);
    const yaml_node_t *root = yaml_document_get_root_node(&doc);
    if (!root)
        return SFP_OK; /* an empty file sets nothing */
    if (root->type != YAML_MAPPING_NODE)
        return sfp__fail(err, SFP_EFORMAT, "%s: expected a mapping of options to values", path);
    if (!yaml_parser_load(parser, &more))
        return not_yaml(path, parser, err);
    const yaml_node_t *second = yaml_document_get_root_node(&more);
    if (second)
        return sfp__fail(err, SFP_EFORMAT, "%s:%zu: a second document starts here, expected one document", path,
                         second->start_mark.line + 1);
    return apply_mapping(path, &doc, root, args, err);
}

sfp_status sfp__yaml_config(const char *path, sfp__args *args, sfp_error *err)
{
    OWNED_PTR(sfp__file_close) FILE *f = NULL;
    yaml_parser_t parser;
    TRY(sfp__file_open(path, &f, err));
    TRY(sfp__check_memory(yaml_parser_initialize(&parser), err));
    yaml_parser_set_input_file(&parser, f);
    sfp_status s = apply_document(path, &parser, args, err);
    yaml_parser_delete(&parser);
    return s;
}

#include "cli/command.h"

#include "io/file.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

/* A configuration is a mapping with lists: two levels. The time of libyaml grows with the square of the depth and of the number of
 * anchors, so both are limited. */
enum { VALUE_MAX = 4096, MAX_DEPTH = 8, FILE_MAX = 256 << 10 };

static sfp_status no_memory(const char *path, sfp_error *err)
{
    return sfp__fail(err, SFP_ENOMEM, "%s: cannot allocate memory to read the file", path);
}

/* libyaml does not set the kind of all errors, but every error of the file has a description. */
static bool is_memory_error(const yaml_parser_t *parser)
{
    return parser->error == YAML_MEMORY_ERROR || !parser->problem;
}

static sfp_status not_yaml(const char *path, const yaml_parser_t *parser, sfp_error *err)
{
    if (is_memory_error(parser))
        return no_memory(path, err);
    return sfp__fail(err, SFP_EFORMAT, "%s:%zu: %s", path, parser->problem_mark.line + 1, parser->problem);
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
        sfp_status s = sfp__args_set(args, name, text, SFP__RANK_FILE, origin, err);
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

/* Fails if collections are nested too deeply. Other errors are found again by apply_document, which reports them. */
static sfp_status check_depth(const char *path, yaml_parser_t *parser, sfp_error *err)
{
    int depth = 0;
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return is_memory_error(parser) ? no_memory(path, err) : SFP_OK;
        size_t line = event.start_mark.line + 1;
        yaml_event_type_t type = event.type;
        yaml_event_delete(&event);
        depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
        depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
        if (depth > MAX_DEPTH)
            return sfp__fail(err, SFP_EFORMAT, "%s:%zu: more than %d nested collections, expected a mapping of options to values",
                             path, line, MAX_DEPTH);
        more = type != YAML_STREAM_END_EVENT;
    }
    return SFP_OK;
}

/* Reads the whole file, which may be a pipe, into text (FILE_MAX + 1). */
static sfp_status read_text(const char *path, char *text, size_t *size, sfp_error *err)
{
    OWNED_PTR(sfp__file_close) FILE *f = NULL;
    TRY(sfp__file_open(path, &f, err));
    *size = fread(text, 1, FILE_MAX + 1, f);
    if (ferror(f))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", path);
    if (*size > FILE_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: configuration has more than %d KiB, the maximum", path, FILE_MAX >> 10);
    return SFP_OK;
}

sfp_status sfp__yaml_config(const char *path, sfp__args *args, sfp_error *err)
{
    OWNED char *text = NULL;
    size_t size = 0;
    TRY(sfp__alloc(&text, FILE_MAX + 1, 1, err));
    TRY(read_text(path, text, &size, err));
    for (int pass = 0; pass < 2; pass++) {
        yaml_parser_t parser;
        if (!yaml_parser_initialize(&parser))
            return no_memory(path, err);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
        sfp_status s = pass == 0 ? check_depth(path, &parser, err) : apply_document(path, &parser, args, err);
        yaml_parser_delete(&parser);
        TRY(s);
    }
    return SFP_OK;
}

/* Names of classes, domains and the like to numbers, in the order in which they come or sorted.
 *
 * Names come from files and are hostile: their number and length have limits. */
#ifndef SFP_STREAM_NAMES_H
#define SFP_STREAM_NAMES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define SFP_CLASSES_MAX 65536   /* also domains */
#define SFP_CLASS_NAME_MAX 1024 /* bytes of a class or domain name */

/* Names that are whole numbers first, by number; then the others in byte order. For classes and domains. */
int sfp__name_compare(const char *a, const char *b);

/* Names to numbers, by a hash table. Zero-initialised is empty. */
typedef struct sfp_names {
    int count;
    char **name; /* (count) */
    size_t room;
    int32_t *slot; /* (slots) number + 1; 0: free */
    size_t slots;  /* a power of two */
} sfp_names;

/* The number of the name of n bytes; a new one gets the next number. Empty, longer than SFP_CLASS_NAME_MAX, not UTF-8, with a
 * NUL byte or more than SFP_CLASSES_MAX of them: an error (without a file's name: use sfp__fail_prefix). */
sfp_status sfp__names_add(sfp_names *t, const char *s, size_t n, int32_t *out, sfp_error *err);
/* Room for all names there may be at once, so that the list stays where it is while another thread reads it. */
sfp_status sfp__names_reserve(sfp_names *t, sfp_error *err);
int32_t sfp__names_find(const sfp_names *t, const char *s, size_t n); /* -1: not there */
/* Renumbers in the order of sfp__name_compare; *new_of (count, sfp__malloc'ed; NULL when there are none): new number of an old
 * one. */
sfp_status sfp__names_sort(sfp_names *t, int32_t **new_of, sfp_error *err);
/* Gives the list away (to class_names, domain_names); t is empty afterwards. */
void sfp__names_give(sfp_names *t, char ***names, int *count);
void sfp__names_done(sfp_names *t);
void sfp__name_list_free(char **name, int count); /* a list that was given away */
/* Lines of a text file (class_names.txt and the like) as names, in their order; blank lines and '\r' are dropped; a name that
 * comes twice is an error. SFP_ENOTFOUND when there is no such file. */
sfp_status sfp__names_read(const char *path, sfp_names *out, sfp_error *err);

#endif

/* yaml.c - converts YAML to JSON values.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "backends/kubernetes/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <yaml.h>

#include "backends/http/json.h"
#include "runtime/base/config_value.h"
#include "runtime/base/fds.h"

#define MAX_DEPTH 64
#define MAX_NODES 200000 /* each use of an alias counts */

struct reader {
    yaml_document_t doc;
    const char *name;
    size_t nodes;
    struct fbr_error *err;
};

static struct json_t *value_of(struct reader *r, int index, int depth);

static struct json_t *refuse(struct reader *r, const yaml_node_t *n, const char *why)
{
    fbr_fail(r->err, -EINVAL, "%s:%zu: %s", r->name, n ? n->start_mark.line + 1 : 1, why);
    return NULL;
}

/* Reads a decimal, 0x or 0o number, or an octal number that begins with 0. */
static bool whole_number(const char *s, long long *out)
{
    const char *digits = s + (*s == '-' || *s == '+');
    int base = 10;
    char *end;

    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'o')) {
        base = digits[1] == 'x' ? 16 : 8;
        digits += 2;
    } else if (digits[0] == '0' && digits[1]) {
        base = 8;
    }
    if (!strchr("0123456789abcdefABCDEF", *digits) || !*digits)
        return false;
    errno = 0;
    *out = strtoll(digits, &end, base);
    if (*s == '-')
        *out = -*out;
    return errno == 0 && !*end;
}

static struct json_t *plain(const char *s)
{
    bool yes = fbr_word_index("true True TRUE yes Yes YES on On ON", s) >= 0;
    long long n;
    char *end;
    double d;

    if (!s[0] || fbr_word_index("~ null Null NULL", s) >= 0)
        return fbr_json_pack("n");
    if (yes || fbr_word_index("false False FALSE no No NO off Off OFF", s) >= 0)
        return fbr_json_pack("b", yes);
    if (whole_number(s, &n))
        return fbr_json_pack("I", n);
    if (s[strspn(s, "+-.0123456789eE")] == '\0' && strpbrk(s, "0123456789")) {
        d = strtod(s, &end);
        if (!*end && d - d == 0) /* finite */
            return fbr_json_pack("f", d);
    }
    return fbr_json_string(s);
}

static struct json_t *scalar(struct reader *r, const yaml_node_t *n)
{
    const char *s = (const char *)n->data.scalar.value;
    struct json_t *j;

    if (strlen(s) != n->data.scalar.length)
        return refuse(r, n, "a string has a NUL byte");
    if (n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
        (n->tag && !strcmp((const char *)n->tag, "tag:yaml.org,2002:binary")))
        j = fbr_json_string(s);
    else
        j = plain(s);
    return j ? j : refuse(r, n, "out of memory");
}

static struct json_t *sequence(struct reader *r, const yaml_node_t *n, int depth)
{
    struct json_t *list = fbr_json_pack("[]");

    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++) {
        struct json_t *item = list ? value_of(r, *i, depth + 1) : NULL;

        if (!item || fbr_json_append(list, item) < 0) {
            fbr_json_free(list);
            return NULL;
        }
    }
    return list;
}

struct filling {
    struct json_t *into;
    int rc;
};

static void add_missing(void *user, const char *key, struct json_t *value)
{
    struct filling *f = user;

    if (!fbr_json_at(f->into, key, NULL) &&
        fbr_json_set(f->into, key, fbr_json_pack("O", value)) < 0)
        f->rc = -ENOMEM;
}

/* Adds the members of a merge key ("<<"), an object or a list of objects: the first of a name
 * counts, and is not mixed with others. */
static int merge_key(struct json_t *into, const struct json_t *from)
{
    struct filling f = {into, 0};

    fbr_json_each(from, add_missing, &f);
    for (size_t i = 0; i < fbr_json_count(from); i++)
        fbr_json_each(fbr_json_item(from, i), add_missing, &f);
    return f.rc;
}

static int set_member(struct reader *r, struct json_t *object, const yaml_node_pair_t *p, int depth)
{
    const yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
    const char *key;
    struct json_t *value;

    if (!k || k->type != YAML_SCALAR_NODE ||
        strlen((const char *)k->data.scalar.value) != k->data.scalar.length) {
        refuse(r, k, "a key is not a string");
        return -EINVAL;
    }
    key = (const char *)k->data.scalar.value;
    value = value_of(r, p->value, depth + 1);
    if (!value)
        return -EINVAL;
    if (!strcmp(key, "<<")) {
        int rc = merge_key(object, value);

        fbr_json_free(value);
        return rc;
    }
    if (fbr_json_set(object, key, value) == 0)
        return 0;
    refuse(r, k, "a key is not UTF-8");
    return -EINVAL;
}

static struct json_t *mapping(struct reader *r, const yaml_node_t *n, int depth)
{
    struct json_t *object = fbr_json_pack("{}");

    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++)
        if (!object || set_member(r, object, p, depth) < 0) {
            fbr_json_free(object);
            return NULL;
        }
    return object;
}

static struct json_t *value_of(struct reader *r, int index, int depth)
{
    const yaml_node_t *n = yaml_document_get_node(&r->doc, index);

    if (!n || depth > MAX_DEPTH || ++r->nodes > MAX_NODES)
        return refuse(r, n, "it is nested too deeply, or its aliases expand to too much");
    if (n->type == YAML_SEQUENCE_NODE)
        return sequence(r, n, depth);
    return n->type == YAML_MAPPING_NODE ? mapping(r, n, depth) : scalar(r, n);
}

static bool has_more(yaml_parser_t *p)
{
    yaml_document_t next;
    bool more;

    if (!yaml_parser_load(p, &next))
        return true;
    more = yaml_document_get_root_node(&next) != NULL;
    yaml_document_delete(&next);
    return more;
}

struct json_t *fbr_kube_yaml(const char *text, size_t len, const char *name, struct fbr_error *err)
{
    struct reader r = {.name = name, .err = err};
    struct json_t *j = NULL;
    yaml_parser_t p;

    if (!yaml_parser_initialize(&p)) {
        fbr_fail(err, -ENOMEM, "%s: out of memory", name);
        return NULL;
    }
    yaml_parser_set_input_string(&p, (const unsigned char *)text, len);
    if (!yaml_parser_load(&p, &r.doc)) {
        fbr_fail(err, -EINVAL, "%s:%zu: not YAML: %s", name, p.problem_mark.line + 1,
                 p.problem ? p.problem : "out of memory");
        yaml_parser_delete(&p);
        return NULL;
    }
    if (!yaml_document_get_root_node(&r.doc))
        j = fbr_json_pack("{}");
    else if ((j = value_of(&r, 1, 0)) && has_more(&p)) {
        fbr_json_free(j);
        j = refuse(&r, NULL, "it must hold exactly one YAML document");
    }
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&p);
    return j;
}

struct json_t *fbr_kube_yaml_file(const char *path, struct fbr_error *err)
{
    size_t len;
    char *text = fbr_fds_slurp(path, &len, err);
    struct json_t *j = text ? fbr_kube_yaml(text, len, path, err) : NULL;

    free(text);
    return j;
}

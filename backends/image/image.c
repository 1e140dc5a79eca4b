/* image.c - writes the archive of an image.
 *
 * The archive contains other archives: a layer is a tar file, whose size and digest stand before
 * its bytes in the outer archive. So a layer is made twice from the same files, first for the
 * digest, then for the archive.
 *
 * Times are 0, except for Python's sources: a compiled file (.pyc) is valid only for a source of
 * the same time and size.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "backends/image/image_priv.h"
#include "runtime/base/fds.h"

#define BLOCK (256 * 1024)

/* ---- Digests ---- */

/* OpenSSL must not clean up at exit(): Fiber's own exit handler runs later. */
static EVP_MD_CTX *digest_new(void)
{
    EVP_MD_CTX *md;

    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    md = EVP_MD_CTX_new();
    if (md && EVP_DigestInit_ex(md, EVP_sha256(), NULL))
        return md;
    EVP_MD_CTX_free(md);
    return NULL;
}

static int digest_end(EVP_MD_CTX *md, char out[IMAGE_DIGEST], struct fbr_error *err)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned int n = 0;

    if (!md || !EVP_DigestFinal_ex(md, hash, &n) || n != 32)
        return fbr_fail(err, -ENOMEM, "no memory for a digest");
    memcpy(out, "sha256:", 7);
    for (unsigned int k = 0; k < n; k++)
        snprintf(out + 7 + 2 * k, 3, "%02x", hash[k]);
    return 0;
}

int image_digest(const void *data, size_t len, char out[IMAGE_DIGEST], struct fbr_error *err)
{
    EVP_MD_CTX *md = digest_new();
    int rc;

    if (md && !EVP_DigestUpdate(md, data, len)) {
        EVP_MD_CTX_free(md);
        md = NULL;
    }
    rc = digest_end(md, out, err);
    EVP_MD_CTX_free(md);
    return rc;
}

/* ---- Destinations of bytes ---- */

struct sink {
    EVP_MD_CTX *md;        /* a digest, NULL: none; and */
    struct archive *outer; /* an entry of another archive, */
    int fd;                /* or a descriptor; -1: none */
    uint64_t bytes;
    uint64_t most; /* for `outer`: the most bytes */
    int failed;    /* negative errno */
};

static la_ssize_t on_bytes(struct archive *a, void *user, const void *data, size_t len)
{
    struct sink *s = user;
    int rc = 0;

    if (s->failed)
        return -1;
    s->bytes += len;
    if (s->md && !EVP_DigestUpdate(s->md, data, len))
        rc = -ENOMEM;
    else if (s->outer && s->bytes > s->most)
        rc = -ESTALE;
    else if (s->outer)
        rc = archive_write_data(s->outer, data, len) == (la_ssize_t)len ? 0 : -EIO;
    else if (s->fd >= 0)
        rc = fbr_fds_write(s->fd, data, len);
    if (rc < 0) {
        s->failed = rc;
        archive_set_error(a, -rc, "%s", fbr_strerror(rc));
        return -1;
    }
    return (la_ssize_t)len;
}

/* NULL without memory. Free with archive_write_free(). raw: names are bytes in any locale; each
 * entry then has an extra header. */
static struct archive *tar_new(struct sink *s, bool raw)
{
    struct archive *a = archive_write_new();

    if (a && archive_write_set_format_pax_restricted(a) == ARCHIVE_OK &&
        archive_write_add_filter_none(a) == ARCHIVE_OK &&
        (!raw || archive_write_set_format_option(a, "pax", "hdrcharset", "BINARY") == ARCHIVE_OK) &&
        archive_write_set_bytes_per_block(a, BLOCK) == ARCHIVE_OK &&
        archive_write_set_bytes_in_last_block(a, 1) == ARCHIVE_OK &&
        archive_write_open(a, s, NULL, on_bytes, NULL) == ARCHIVE_OK)
        return a;
    archive_write_free(a);
    return NULL;
}

int image_tar_failed(struct archive *a, const char *name, struct fbr_error *err)
{
    int code = archive_errno(a);

    return fbr_fail(err, code > 0 ? -code : -EIO, "cannot write %.256s: %.256s", name,
                    code > 0 ? fbr_strerror(code) : archive_error_string(a));
}

/* Frees the archive. After a failure nothing more is written, not even the end mark of
 * libarchive. */
static void tar_free(struct archive *a, struct sink *s, int rc)
{
    if (rc < 0 && !s->failed)
        s->failed = rc;
    archive_write_free(a);
}

/* ---- A layer ---- */

/* Returns the layer of a file: 0 for libraries and packages, which seldom change, 1 for the rest.
 * The path alone decides, so that the same files give the same layers. */
static int layer_of(const char *path)
{
    return strncmp(path, "/usr/", 5) != 0 && !strstr(path, "/lib/") && !strstr(path, "/lib64/");
}

static int changed(const char *path, struct fbr_error *err)
{
    return fbr_fail(err, -ESTALE, "%.512s was changed while the image was made; make it again",
                    path);
}

/* Whether the file has other bytes than before. One that only becomes longer, as a log does, has
 * the same: the digest of the layer shows if they were changed, too. */
static bool is_changed(const struct fbr_file *f, const struct stat *st)
{
    return (uint64_t)st->st_size < f->size ||
           ((uint64_t)st->st_size == f->size && fbr_file_mtime(st) != f->mtime);
}

static int put_contents(struct archive *a, const char *name, const struct fbr_file *f,
                        struct fbr_error *err)
{
    char block[65536];
    uint64_t left = f->size;
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), rc = 0;

    if (fd < 0)
        return fbr_fail(err, -errno, "cannot read %.512s, which the image needs: %m", f->path);
    if (fstat(fd, &st) < 0 || is_changed(f, &st))
        rc = changed(f->path, err);
    while (rc == 0 && left > 0) {
        ssize_t n = read(fd, block, left < sizeof(block) ? (size_t)left : sizeof(block));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = fbr_fail(err, -errno, "cannot read %.512s: %m", f->path);
        else if (n == 0)
            rc = changed(f->path, err);
        else if (archive_write_data(a, block, (size_t)n) != n)
            rc = image_tar_failed(a, name, err);
        else
            left -= (uint64_t)n;
    }
    close(fd);
    return rc;
}

static bool is_python(const char *path)
{
    size_t n = strlen(path);

    return n > 3 && !strcmp(path + n - 3, ".py");
}

static int put_header(struct archive *a, const char *name, const struct fbr_file *f,
                      struct fbr_error *err)
{
    static const mode_t types[] = {
        [FBR_FILE_DIRECTORY] = AE_IFDIR, [FBR_FILE_LINK] = AE_IFLNK, [FBR_FILE_REGULAR] = AE_IFREG};
    struct archive_entry *e = archive_entry_new();
    int rc = 0;

    if (!e)
        return fbr_fail(err, -ENOMEM, "out of memory");
    archive_entry_set_pathname(e, name);
    archive_entry_set_filetype(e, types[f->kind]);
    archive_entry_set_perm(e, f->mode);
    archive_entry_set_mtime(e, is_python(name) ? (time_t)(f->mtime / 1000000000) : 0, 0);
    archive_entry_set_size(e, f->kind == FBR_FILE_REGULAR ? (la_int64_t)f->size : 0);
    if (f->kind == FBR_FILE_LINK)
        archive_entry_set_symlink(e, f->target);
    if (archive_write_header(a, e) < ARCHIVE_WARN)
        rc = image_tar_failed(a, name, err);
    archive_entry_free(e);
    return rc;
}

int image_put_file(struct archive *a, const char *name, const struct fbr_file *f,
                   struct fbr_error *err)
{
    int rc = put_header(a, name, f, err);

    if (rc < 0 || f->kind != FBR_FILE_REGULAR)
        return rc;
    if (!f->text)
        return put_contents(a, name, f, err);
    return archive_write_data(a, f->text, f->size) == (la_ssize_t)f->size
               ? 0
               : image_tar_failed(a, name, err);
}

static bool is_ascii(const char *text)
{
    for (; text && *text; text++)
        if ((unsigned char)*text > 126)
            return false;
    return true;
}

static int put_layer(struct fbr_image *i, int layer, struct sink *s, struct fbr_error *err)
{
    const struct fbr_file *const *files;
    struct archive *a;
    bool raw = false;
    size_t n = 0;
    int rc = 0;

    files = fbr_closure_files(i->closure, &n);
    for (size_t k = 0; files && k < n; k++)
        if (layer_of(files[k]->path) == layer)
            raw = raw || !is_ascii(files[k]->path) || !is_ascii(files[k]->target);
    a = tar_new(s, raw);
    if (!a || !files)
        rc = fbr_fail(err, -ENOMEM, "out of memory");
    for (size_t k = 0; k < n && rc == 0; k++)
        if (layer_of(files[k]->path) == layer)
            rc = image_put_file(a, files[k]->path + 1, files[k], err);
    if (rc == 0 && archive_write_close(a) != ARCHIVE_OK)
        rc = image_tar_failed(a, "a layer", err);
    tar_free(a, s, rc);
    return rc;
}

/* Writes a layer, and computes its digest meanwhile. */
static int digest_layer(struct fbr_image *i, int layer, struct sink *s, char digest[IMAGE_DIGEST],
                        struct fbr_error *err)
{
    int rc;

    s->md = digest_new();
    rc = s->md ? put_layer(i, layer, s, err) : fbr_fail(err, -ENOMEM, "no memory for a digest");
    if (rc == 0)
        rc = digest_end(s->md, digest, err);
    EVP_MD_CTX_free(s->md);
    return rc;
}

/* ---- The archive ---- */

struct parts {
    struct image_layer layers[IMAGE_LAYERS];
    char config[IMAGE_DIGEST], manifest[IMAGE_DIGEST];
    char *config_text, *manifest_text, *index_text, *docker_text;
};

static int make_parts(struct fbr_image *i, struct parts *p, const char *tagged, const char *whole,
                      struct fbr_error *err)
{
    fbr_closure_measure(i->closure);
    for (int k = 0; k < IMAGE_LAYERS; k++) {
        struct sink s = {.fd = -1};
        int rc = digest_layer(i, k, &s, p->layers[k].digest, err);

        if (rc < 0)
            return rc;
        p->layers[k].len = s.bytes;
    }
    p->config_text = image_config(i, p->layers, err);
    if (!p->config_text || image_digest(p->config_text, strlen(p->config_text), p->config, err) < 0)
        return err->code;
    p->manifest_text = image_manifest(p->config, strlen(p->config_text), p->layers, err);
    if (!p->manifest_text ||
        image_digest(p->manifest_text, strlen(p->manifest_text), p->manifest, err) < 0)
        return err->code;
    p->index_text = image_index(p->manifest, strlen(p->manifest_text), whole, err);
    p->docker_text = image_docker(p->config, p->layers, tagged, err);
    return p->index_text && p->docker_text ? 0 : err->code;
}

static int put_document(struct archive *a, const char *name, const char *text,
                        struct fbr_error *err)
{
    const struct fbr_file f = {
        .kind = FBR_FILE_REGULAR, .mode = 0644, .text = text, .size = strlen(text)};

    return image_put_file(a, name, &f, err);
}

static int put_blob(struct archive *a, const char *digest, const char *text, struct fbr_error *err)
{
    char name[IMAGE_BLOB];

    image_blob(digest, name);
    return put_document(a, name, text, err);
}

/* Writes a layer again, and checks that the files still give the same bytes. */
static int put_layer_blob(struct fbr_image *i, struct archive *a, const struct sink *s, int layer,
                          const struct image_layer *made, struct fbr_error *err)
{
    const struct fbr_file blob = {.kind = FBR_FILE_REGULAR, .mode = 0644, .size = made->len};
    struct sink inner = {.outer = a, .most = made->len};
    char name[IMAGE_BLOB], digest[IMAGE_DIGEST];
    int rc;

    image_blob(made->digest, name);
    if ((rc = put_header(a, name, &blob, err)) < 0)
        return rc;
    rc = digest_layer(i, layer, &inner, digest, err);
    if (rc < 0 && s->failed) /* the reason */
        return image_tar_failed(a, "the image", err);
    return rc < 0 || strcmp(digest, made->digest) == 0 ? rc : changed("one of its files", err);
}

static int put_archive(struct fbr_image *i, const struct parts *p, struct sink *s,
                       struct fbr_error *err)
{
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    static const struct fbr_file folder = {.kind = FBR_FILE_DIRECTORY, .mode = 0755};
    struct archive *a = tar_new(s, false);
    int rc;

    if (!a)
        return fbr_fail(err, -ENOMEM, "out of memory");
    if ((rc = put_header(a, "blobs", &folder, err)) < 0 ||
        (rc = put_header(a, "blobs/sha256", &folder, err)) < 0 ||
        (rc = put_blob(a, p->config, p->config_text, err)) < 0 ||
        (rc = put_blob(a, p->manifest, p->manifest_text, err)) < 0)
        goto done;
    for (int k = 0; k < IMAGE_LAYERS; k++)
        if ((rc = put_layer_blob(i, a, s, k, &p->layers[k], err)) < 0)
            goto done;
    if ((rc = put_document(a, "index.json", p->index_text, err)) < 0 ||
        (rc = put_document(a, "manifest.json", p->docker_text, err)) < 0 ||
        (rc = put_document(a, "oci-layout", layout, err)) < 0)
        goto done;
    if (archive_write_close(a) != ARCHIVE_OK)
        rc = image_tar_failed(a, "the image", err);
done:
    tar_free(a, s, rc);
    return rc;
}

int fbr_image_write(struct fbr_image *i, const char *name, int fd, struct fbr_error *err)
{
    char tagged[FBR_IMAGE_NAME_MAX], whole[FBR_IMAGE_NAME_MAX];
    struct sink s = {.fd = fd};
    struct fbr_error own = {0, ""};
    struct parts p;
    int rc;

    memset(&p, 0, sizeof(p));
    err = err ? err : &own;
    err->code = 0;
    if ((rc = fbr_image_name(name, tagged, whole, err)) < 0 ||
        (rc = make_parts(i, &p, tagged, whole, err)) < 0 || (rc = put_archive(i, &p, &s, err)) < 0)
        goto done;
    memcpy(i->digest, p.config, sizeof(i->digest));
done:
    i->archive = s.bytes;
    free(p.config_text);
    free(p.manifest_text);
    free(p.index_text);
    free(p.docker_text);
    return rc;
}

#include "io/walk.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, FOLDERS_MAX = 1000000 };

typedef struct folder_id {
    dev_t device;
    ino_t inode;
} folder_id;

typedef struct walk {
    const char *root;
    sfp_walk_fn fn;
    void *ctx;
    sfp_text path; /* of the folder being read, below the root, "" or ending in '/' */
    folder_id above[DEPTH_MAX];
    int folders;
} walk;

static sfp_status walk_folder(walk *w, int fd, int depth, sfp_error *err);

/* Of the folder being read; errno says why. */
static sfp_status fail_here(const walk *w, sfp_status status, const char *what, sfp_error *err)
{
    char text[SFP_NAME_MAX * 2];
    if (w->path.length == 0)
        return sfp__fail_errno(err, status, "%s: %s", w->root, what);
    return sfp__fail_errno(err, status, "%s: %s: %s", w->root, sfp__printable(w->path.s, text, sizeof text), what);
}

static sfp_walk_kind kind_of(int fd, const struct dirent *e)
{
    struct stat st;
    if (e->d_type == DT_DIR)
        return SFP_WALK_FOLDER;
    if (e->d_type == DT_REG)
        return SFP_WALK_FILE;
    if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN)
        return SFP_WALK_OTHER;
    if (fstatat(fd, e->d_name, &st, 0) != 0)
        return SFP_WALK_BROKEN;
    return S_ISDIR(st.st_mode) ? SFP_WALK_FOLDER : S_ISREG(st.st_mode) ? SFP_WALK_FILE : SFP_WALK_OTHER;
}

/* One name of the folder being read. */
static sfp_status walk_entry(walk *w, int fd, const struct dirent *e, int depth, sfp_error *err)
{
    size_t length = w->path.length;
    sfp_walk_kind kind = kind_of(fd, e);
    sfp_status status = SFP_OK;
    sfp__text_put(&w->path, e->d_name);
    sfp__text_put(&w->path, kind == SFP_WALK_FOLDER ? "/" : "");
    if (w->path.failed)
        return sfp__fail_nomem(err);
    if (kind == SFP_WALK_FOLDER) {
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = below < 0 ? fail_here(w, SFP_EIO, "cannot open the folder", err) : walk_folder(w, below, depth + 1, err);
    } else {
        status = w->fn(w->ctx, kind, w->path.s, depth, err);
    }
    w->path.length = length;
    w->path.s[length] = '\0';
    return status;
}

static bool is_above(const walk *w, const struct stat *st, int depth)
{
    for (int i = 0; i < depth; i++)
        if (w->above[i].device == st->st_dev && w->above[i].inode == st->st_ino)
            return true;
    return false;
}

static sfp_status walk_entries(walk *w, DIR *dir, int fd, int depth, sfp_error *err)
{
    sfp_status status = SFP_OK;
    const struct dirent *e = NULL;
    while (status == SFP_OK && (errno = 0, e = readdir(dir)))
        if (e->d_name[0] != '.')
            status = walk_entry(w, fd, e, depth, err);
    if (status == SFP_OK && errno != 0)
        return fail_here(w, SFP_EIO, "cannot read the folder", err);
    return status || depth == 0 ? status : w->fn(w->ctx, SFP_WALK_FOLDER, w->path.s, depth - 1, err);
}

/* Takes fd over. */
static sfp_status walk_folder(walk *w, int fd, int depth, sfp_error *err)
{
    struct stat st;
    sfp_status status = SFP_OK;
    DIR *dir = NULL;
    if (depth >= DEPTH_MAX) {
        errno = ELOOP;
        status = fail_here(w, SFP_ELIMIT, "folders are nested too deep", err);
    } else if (++w->folders > FOLDERS_MAX) {
        status = sfp__fail(err, SFP_ELIMIT, "%s: more than %d folders, counting each way to one", w->root, FOLDERS_MAX);
    } else if (fstat(fd, &st) != 0 || !(dir = fdopendir(fd))) {
        status = fail_here(w, SFP_EIO, "cannot open the folder", err);
    } else if (!is_above(w, &st, depth)) {
        w->above[depth] = (folder_id){st.st_dev, st.st_ino};
        status = walk_entries(w, dir, fd, depth, err);
    }
    if (dir)
        (void)closedir(dir);
    else
        (void)close(fd);
    return status;
}

sfp_status sfp__walk(const char *root, sfp_walk_fn fn, void *ctx, sfp_error *err)
{
    walk w = {.root = root, .fn = fn, .ctx = ctx};
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sfp__fail_errno(err, errno == ENOENT ? SFP_ENOTFOUND : SFP_EIO, "%s: cannot open the folder", root);
    sfp_status status = walk_folder(&w, fd, 0, err);
    sfp__text_done(&w.path);
    return status;
}

/* Preloaded: lets the N-th file operation of a process fail, or kills the process at it.

   Only operations on paths that contain SCOPE, and on files opened by such a path, count. Armed by
   attack_arm(), after a fork, or by ATTACK_CALLS="SCOPE KINDS N HOW ERRNO" in the environment of a
   process that is started (with ATTACK_RANK: only of this MPI rank). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, RENAME = 8, MKDIR = 16, REMOVE = 32, READ = 64, LIST = 128, LOCK = 256 };
enum { COUNT, FAIL_ONCE, FAIL_ON, KILL_BEFORE, KILL_AFTER };
enum { FILES = 4096 };

static char scope[256], inside[FILES];
static unsigned kinds;
static long due, seen;
static int how = -1, error_number;

void attack_arm(const char *where, unsigned which, long number, int what, int error)
{
    snprintf(scope, sizeof scope, "%s", where);
    kinds = which, due = number, how = what, error_number = error, seen = 0;
}

long attack_seen(void) { return seen; }

__attribute__((constructor)) static void from_environment(void)
{
    const char *given = getenv("ATTACK_CALLS"), *wanted = getenv("ATTACK_RANK"), *rank = getenv("PMI_RANK");
    char where[256];
    unsigned which;
    long number;
    int what, error;
    if (!given || (wanted && (!rank || strcmp(wanted, rank)))) return;
    if (sscanf(given, "%255s %u %ld %d %d", where, &which, &number, &what, &error) == 5)
        attack_arm(where, which, number, what, error);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* 0: go on; 1: fail; 2: go on, then die. */
static int strike(unsigned kind, int concerned)
{
    if (how < 0 || !concerned || !(kinds & kind)) return 0;
    ++seen;
    if (how == COUNT || seen < due || (seen > due && how != FAIL_ON)) return 0;
    if (how == KILL_BEFORE) die();
    if (how == KILL_AFTER) return 2;
    errno = error_number;
    return 1;
}

static int file_inside(int file) { return file >= 0 && file < FILES && inside[file]; }

static int path_inside(int folder, const char *path)
{
    if (how < 0 || !path) return 0;
    return strstr(path, scope) != NULL || (path[0] != '/' && file_inside(folder));
}

static int opened(int file, int concerned)
{
    if (file >= 0 && file < FILES) inside[file] = concerned;
    return file;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define WRAPPED(kind, concerned, failed, call) \
    int verdict = strike(kind, concerned); \
    if (verdict == 1) return failed; \
    __typeof__(call) result = call; \
    if (verdict == 2) die(); \
    return result

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(more, int) : 0;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more); \
        REAL(name); int concerned = path_inside(-1, path); \
        WRAPPED(OPEN, concerned, -1, opened(real(path, flags, mode), concerned)); \
    }
#define OPENING_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more); \
        REAL(name); int concerned = path_inside(folder, path); \
        WRAPPED(OPEN, concerned, -1, opened(real(folder, path, flags, mode), concerned)); \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

int close(int file) { REAL(close); if (file >= 0 && file < FILES) inside[file] = 0; return real(file); }
ssize_t write(int file, const void *data, size_t size)
{ REAL(write); WRAPPED(WRITE, file_inside(file), -1, real(file, data, size)); }
ssize_t read(int file, void *data, size_t size)
{ REAL(read); WRAPPED(READ, file_inside(file), -1, real(file, data, size)); }
int fsync(int file) { REAL(fsync); WRAPPED(SYNC, file_inside(file), -1, real(file)); }
int fdatasync(int file) { REAL(fdatasync); WRAPPED(SYNC, file_inside(file), -1, real(file)); }
int ftruncate(int file, off_t size) { REAL(ftruncate); WRAPPED(WRITE, file_inside(file), -1, real(file, size)); }
int ftruncate64(int file, off64_t size)
{ REAL(ftruncate64); WRAPPED(WRITE, file_inside(file), -1, real(file, size)); }
int rename(const char *from, const char *to) { REAL(rename); WRAPPED(RENAME, path_inside(-1, to), -1, real(from, to)); }
int renameat(int a, const char *from, int b, const char *to)
{ REAL(renameat); WRAPPED(RENAME, path_inside(b, to), -1, real(a, from, b, to)); }
int link(const char *from, const char *to) { REAL(link); WRAPPED(RENAME, path_inside(-1, to), -1, real(from, to)); }
int symlink(const char *from, const char *to)
{ REAL(symlink); WRAPPED(RENAME, path_inside(-1, to), -1, real(from, to)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); WRAPPED(MKDIR, path_inside(-1, path), -1, real(path, mode)); }
int mkdirat(int folder, const char *path, mode_t mode)
{ REAL(mkdirat); WRAPPED(MKDIR, path_inside(folder, path), -1, real(folder, path, mode)); }
int unlink(const char *path) { REAL(unlink); WRAPPED(REMOVE, path_inside(-1, path), -1, real(path)); }
int unlinkat(int folder, const char *path, int flags)
{ REAL(unlinkat); WRAPPED(REMOVE, path_inside(folder, path), -1, real(folder, path, flags)); }
int rmdir(const char *path) { REAL(rmdir); WRAPPED(REMOVE, path_inside(-1, path), -1, real(path)); }
DIR *opendir(const char *path) { REAL(opendir); WRAPPED(LIST, path_inside(-1, path), NULL, real(path)); }
int flock(int file, int operation) { REAL(flock); WRAPPED(LOCK, file_inside(file), -1, real(file, operation)); }

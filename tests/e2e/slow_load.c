/* Preloaded into a daemon: the first file whose name ends with ".gguf" is opened only once somebody
   writes to the pipe that LOAD_GATE names, as if it were on a very slow disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*real_open)(const char *, int, ...);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void wait_at_gate(void) {
  const int gate = real_open(getenv("LOAD_GATE"), O_RDONLY | O_CLOEXEC);
  if (gate < 0) abort();
  close(gate);
}

int open(const char *path, int flags, ...) {
  if (real_open == NULL) real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const size_t length = strlen(path);
  if (length > 5 && strcmp(path + length - 5, ".gguf") == 0) pthread_once(&once, wait_at_gate);
  return real_open(path, flags, mode);
}

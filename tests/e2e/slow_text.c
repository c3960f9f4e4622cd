/* Preloaded into a daemon: a thread that looks at the clock for the first time waits until the pipe
   "$TEXT_GATE-<its name>" has been opened and closed by somebody. One that works on texts does so
   when it begins with its first, and then seems to need very long for it. Threads without such a
   pipe do not wait. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread int waited;

static void wait_at_gate(void) {
  char name[16];
  char path[4096];
  char byte;
  pthread_getname_np(pthread_self(), name, sizeof name);
  snprintf(path, sizeof path, "%s-%s", getenv("TEXT_GATE"), name);
  const int gate = open(path, O_RDONLY | O_CLOEXEC);
  if (gate < 0) return;
  while (read(gate, &byte, 1) > 0) {
  }
  close(gate);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  if (!waited) {
    waited = 1;
    wait_at_gate();
  }
  return (int)syscall(SYS_clock_gettime, clock, out);
}

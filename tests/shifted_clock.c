/* Preloaded into a process: its wall clock is off by the seconds that the file EDL_TEST_CLOCK says.
 *
 * Its monotonic clock stays as it is. As in the kernel, a wait until a moment of the wall clock
 * lasts as long as it would have without the shift: the kernel gets the moment of its own clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

static _Atomic long shift, read_at;

static long seconds(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    if (now.tv_sec == atomic_exchange(&read_at, now.tv_sec)) return shift;
    const char *path = getenv("EDL_TEST_CLOCK");
    char text[32] = "0";
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        ssize_t size = read(file, text, sizeof text - 1);
        close(file);
        if (size > 0) { text[size] = 0; shift = atol(text); }
    }
    return shift;
}

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = NEXT(clock_gettime)(clock, now);
    if (result == 0 && is_wall(clock)) now->tv_sec += seconds();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = NEXT(gettimeofday)(now, zone);
    if (result == 0) now->tv_sec += seconds();
    return result;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

static struct timespec unshifted(const struct timespec *until) {
    struct timespec moment = *until;
    moment.tv_sec -= seconds();
    if (moment.tv_sec < 0) moment.tv_sec = 0;
    return moment;
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    struct timespec moment = unshifted(until);
    return NEXT(sem_timedwait)(sem, &moment);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    /* A condition variable may count by the monotonic clock: years from that one are no moments
     * of the wall clock. */
    struct timespec moment = until->tv_sec > 1L << 28 ? unshifted(until) : *until;
    return ((typeof(&pthread_cond_timedwait))dlvsym(
        RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2"))(cond, mutex, &moment);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           clockid_t clock, const struct timespec *restrict until) {
    struct timespec moment = is_wall(clock) ? unshifted(until) : *until;
    return NEXT(pthread_cond_clockwait)(cond, mutex, clock, &moment);
}

long syscall(long number, ...) {
    long a[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(given, long);
    va_end(given);
    struct timespec moment;
    if (number == SYS_futex && a[3] && (a[1] & FUTEX_CLOCK_REALTIME)) {
        moment = unshifted((const struct timespec *)a[3]);
        a[3] = (long)&moment;
    }
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// What libstdc++ and the headers of this machine ask of glibc, and glibc 2.28 does not have yet
// (tools/old_glibc.py). It is part of portable builds alone. The names are hidden, so no other library of a
// process gets these in place of its own.
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#error "portable builds are of x86-64, whose system calls fill glibc's struct stat"
#endif

namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

// `then`, a time of `clock`, as a time of the clock that glibc 2.28 waits by. If somebody sets that clock
// meanwhile, the wait is too long or too short by as much; what waits with a limit here looks again.
timespec InRealTime(clockid_t clock, const timespec& then) {
  if (clock == CLOCK_REALTIME) return then;
  timespec now{}, real{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  const int64_t left = (then.tv_sec - now.tv_sec) * kNanoseconds + then.tv_nsec - now.tv_nsec;
  const int64_t at = real.tv_sec * kNanoseconds + real.tv_nsec + left;
  return {.tv_sec = at / kNanoseconds, .tv_nsec = at % kNanoseconds};
}

}  // namespace

extern "C" {

// 2.32. libstdc++ leaves out atomic operations while it is not 0, which is right for no library that starts
// threads.
char __libc_single_threaded = 0;  // NOLINT(bugprone-reserved-identifier)

// 2.33; before, headers called __xstat and the like.
int stat(const char* path, struct stat* out) { return static_cast<int>(syscall(SYS_stat, path, out)); }
int lstat(const char* path, struct stat* out) { return static_cast<int>(syscall(SYS_lstat, path, out)); }
int fstat(int file, struct stat* out) { return static_cast<int>(syscall(SYS_fstat, file, out)); }
int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}
int stat64(const char* path, struct stat64* out) { return static_cast<int>(syscall(SYS_stat, path, out)); }
int lstat64(const char* path, struct stat64* out) { return static_cast<int>(syscall(SYS_lstat, path, out)); }
int fstat64(int file, struct stat64* out) { return static_cast<int>(syscall(SYS_fstat, file, out)); }

// 2.36. std::random_device reads it where it is built in; Expat salts its tables with it.
void arc4random_buf(void* bytes, size_t count) {
  auto* at = static_cast<char*>(bytes);
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(at + done, count - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
  }
}
uint32_t arc4random() {
  uint32_t value = 0;
  arc4random_buf(&value, sizeof value);
  return value;
}

// 2.30.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  const timespec real = InRealTime(clock, *until);
  return pthread_cond_timedwait(condition, mutex, &real);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  const timespec real = InRealTime(clock, *until);
  return pthread_mutex_timedlock(mutex, &real);
}

}  // extern "C"

#include "server/files/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kChildLook{50};  // how often the caller may cancel
constexpr std::chrono::milliseconds kChildEnds{2};   // between two looks at a child that closed its output
constexpr size_t kChildErrors = 4096;                // bytes of its stderr that are kept
constexpr rlim_t kChildFiles = 32;
constexpr rlim_t kMostFiles = 65536;  // closed one by one where the kernel has no close_range
constexpr int kFirstOwn = 3;          // the first descriptor behind stdin, stdout and stderr

// A descriptor above stderr, so that dup2 in the child overwrites none that it still needs.
class ChildFile {
 public:
  ChildFile() = default;
  explicit ChildFile(int fd) : fd_(fd) {
    if (fd_ < 0 || fd_ >= kFirstOwn) return;
    const int moved = fcntl(fd_, F_DUPFD_CLOEXEC, kFirstOwn);
    close(fd_);
    fd_ = moved;
  }
  ChildFile(ChildFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ChildFile& operator=(ChildFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ChildFile() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

Error NoChild(const std::string& program, const char* step) {
  return Error("{}: cannot be started: {}: {}", program, step, std::strerror(errno));
}

struct ChildPipe {
  ChildFile read, write;
};

ChildPipe MakePipe(const std::string& program) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw NoChild(program, "pipe");
  ChildPipe made{ChildFile(ends[0]), ChildFile(ends[1])};
  if (!made.read.is_open() || !made.write.is_open()) throw NoChild(program, "pipe");
  return made;
}

ChildFile FileOf(const std::string& program, std::string_view bytes) {
  ChildFile file(memfd_create("coppice-file", MFD_CLOEXEC));
  if (!file.is_open()) throw NoChild(program, "memfd_create");
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw NoChild(program, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) throw NoChild(program, "lseek");
  return file;
}

// What the child needs, made before it exists: it may allocate nothing.
struct ChildPlan {
  const char* path;
  char* const* words;
  int input, output, errors;
  const ChildLimits* limits;
  int error = 0;  // the child's errno, if the program did not start
};

void Limit(__rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_max = std::min(limit.rlim_max, value);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(resource, &limit);
}

void SetLimits(const ChildLimits& limits) {
  Limit(RLIMIT_CPU, static_cast<rlim_t>(limits.cpu.count()));
  Limit(RLIMIT_AS, static_cast<rlim_t>(limits.memory_bytes));
  Limit(RLIMIT_FSIZE, 0);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NPROC, 0);
  Limit(RLIMIT_NOFILE, kChildFiles);
}

void CloseOthers() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kFirstOwn, ~0U, 0) == 0) return;
#endif
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
  const rlim_t most = known ? std::min(limit.rlim_cur, kMostFiles) : kMostFiles;
  for (rlim_t fd = kFirstOwn; fd < most; ++fd) close(static_cast<int>(fd));
}

// The child, which shares the parent's memory until execve: system calls only. Handlers of the parent's
// signals must not run here, so signals are blocked until they have their default actions.
[[noreturn]] void BecomeProgram(ChildPlan& plan) {
  setsid();  // no terminal to ask for a password, and no Ctrl-C
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &usual, nullptr);
  if (dup2(plan.input, STDIN_FILENO) >= 0 && dup2(plan.output, STDOUT_FILENO) >= 0 &&
      dup2(plan.errors, STDERR_FILENO) >= 0) {
    CloseOthers();
    SetLimits(*plan.limits);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    char* const environment[] = {nullptr};
    execve(plan.path, plan.words, environment);
  }
  plan.error = errno;
  _exit(127);
}

// vfork, because fork would copy the page tables of all memory that holds keys and values, and make every
// later write to it a page fault.
pid_t StartChild(ChildPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = vfork();
  if (child == 0) BecomeProgram(plan);
  if (child < 0) plan.error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return child;
}

class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }

  bool Ended() {
    if (ended_) return true;
    const pid_t found = waitpid(pid_, &status_, WNOHANG);
    if (found < 0 && errno != EINTR) status_ = SIGKILL;  // someone else took its status: no success
    ended_ = found == pid_ || (found < 0 && errno != EINTR);
    return ended_;
  }
  int status() const { return status_; }

 private:
  const pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

// Appends what is there to `buffer`, and closes `file` at its end.
std::string_view ReadSome(ChildFile& file, std::span<char> buffer) {
  const ssize_t count = read(file.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return {};
  if (count <= 0) file.Close();
  return {buffer.data(), static_cast<size_t>(std::max<ssize_t>(0, count))};
}

struct ChildOutput {
  ChildFile output, errors;
};

ChildResult Follow(Child& child, ChildOutput from, const ChildLimits& limits,
                   const std::function<bool()>& cancelled,
                   const std::function<bool(std::string_view)>& take) {
  ChildResult result;
  std::vector<char> buffer(size_t{1} << 16);
  const auto deadline = Clock::now() + limits.wall;
  while (from.output.is_open() || from.errors.is_open() || !child.Ended()) {
    if (cancelled()) throw Cancelled();
    if (Clock::now() > deadline) {
      result.end = ChildEnd::kTooLong;
      return result;
    }
    std::array<pollfd, 2> both = {{{from.output.get(), POLLIN, 0}, {from.errors.get(), POLLIN, 0}}};
    if (!from.output.is_open() && !from.errors.is_open()) {
      std::this_thread::sleep_for(kChildEnds);
      continue;
    }
    if (poll(both.data(), both.size(), static_cast<int>(kChildLook.count())) <= 0) continue;
    if (both[0].revents != 0) {
      const std::string_view piece = ReadSome(from.output, buffer);
      if (!piece.empty() && !take(piece)) {
        result.end = ChildEnd::kDeclined;
        return result;
      }
    }
    if (both[1].revents != 0) {
      const std::string_view piece = ReadSome(from.errors, buffer);
      result.errors += piece.substr(0, kChildErrors - std::min(kChildErrors, result.errors.size()));
    }
  }
  if (WIFEXITED(child.status())) {
    result.code = WEXITSTATUS(child.status());
  } else {
    result.end = ChildEnd::kKilled;
  }
  return result;
}

}  // namespace

ChildResult RunChild(const std::vector<std::string>& words, std::string_view input, const ChildLimits& limits,
                     const std::function<bool()>& cancelled,
                     const std::function<bool(std::string_view)>& take) {
  const std::string& program = words.front();
  const ChildFile file = FileOf(program, input);
  ChildPipe output = MakePipe(program);
  ChildPipe errors = MakePipe(program);
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ChildPlan plan{.path = program.c_str(),
                 .words = pointers.data(),
                 .input = file.get(),
                 .output = output.write.get(),
                 .errors = errors.write.get(),
                 .limits = &limits};
  const pid_t pid = StartChild(plan);
  if (pid < 0) throw Error("{}: cannot be started: vfork: {}", program, std::strerror(plan.error));
  Child child(pid);
  if (plan.error != 0) throw Error("{}: cannot be started: {}", program, std::strerror(plan.error));
  output.write.Close();
  errors.write.Close();
  return Follow(child, {std::move(output.read), std::move(errors.read)}, limits, cancelled, take);
}

}  // namespace coppice

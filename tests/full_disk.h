// A disk that is full: while a FullDisk lives, writing to a file of this process fails ("File too large").
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace coppice {

class FullDisk {
 public:
  FullDisk() : before_(std::signal(SIGXFSZ, SIG_IGN)) {  // the signal would end the process
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit none{0, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

}  // namespace coppice

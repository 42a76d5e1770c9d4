// mpirun -n N coppice: becomes coppice-mpi, the same program linked with MPI. If this program were linked
// with MPI, every machine would need MPI's libraries, and every command would load them.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "apps/cli/commands.h"
#include "base/error.h"
#include "comm/comm.h"

namespace coppice::cli {

void StartMpiProgram(char** argv) {
  if (World().kind() != "none") return;
  const char* processes = std::getenv("OMPI_COMM_WORLD_SIZE");  // Open MPI's mpirun sets it
  if (processes == nullptr || std::atoi(processes) < 2) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "coppice-mpi").string();
  if (!error && access(program.c_str(), X_OK) == 0) execv(program.c_str(), argv);
  throw Error(
      "mpirun started {} processes, but this build has no MPI ({}: {}): install it (Debian: apt-get install "
      "libopenmpi-dev openmpi-bin), configure again and build coppice-mpi",
      processes, program, std::strerror(errno));
}

}  // namespace coppice::cli

#include "avx_vnni_emulator.h"

#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "base/cpu_info.h"

namespace coppice {
namespace {

// The frame of a signal holds the registers as xsave writes them, in the standard format.
constexpr size_t kLowHalves = 160;  // of the vectors: xmm0, xmm1, ...
constexpr size_t kPresent = 512;    // which parts of the state are not all zeros
constexpr uint64_t kHighHalvesBit = 4;
constexpr size_t kInstructionBytes = 5;

struct sigaction previous;
size_t high_halves = 0;

struct Vector {
  unsigned char bytes[32];
};

Vector ReadVector(const unsigned char* state, int number) {
  Vector v = {};
  memcpy(v.bytes, state + kLowHalves + 16 * number, 16);
  uint64_t present = 0;
  memcpy(&present, state + kPresent, sizeof present);
  if ((present & kHighHalvesBit) != 0) memcpy(v.bytes + 16, state + high_halves + 16 * number, 16);
  return v;
}

void WriteVector(unsigned char* state, int number, const Vector& v) {
  memcpy(state + kLowHalves + 16 * number, v.bytes, 16);
  uint64_t present = 0;
  memcpy(&present, state + kPresent, sizeof present);
  if ((present & kHighHalvesBit) == 0) memset(state + high_halves, 0, 16 * 16);
  memcpy(state + high_halves + 16 * number, v.bytes + 16, 16);
  present |= kHighHalvesBit;
  memcpy(state + kPresent, &present, sizeof present);
}

// VEX.256.66.0F38.W0 50 /r with a register for the last operand.
bool IsVpdpbusd(const unsigned char* at) {
  return at[0] == 0xc4 && (at[1] & 31) == 2 && (at[2] & 0x87) == 0x05 && at[3] == 0x50 && at[4] >> 6 == 3;
}

void Execute(const unsigned char* at, unsigned char* state) {
  const int to = ((at[4] >> 3) & 7) | ((~at[1] >> 7) & 1) << 3;
  const Vector a = ReadVector(state, (~at[2] >> 3) & 15);                      // unsigned
  const Vector b = ReadVector(state, (at[4] & 7) | ((~at[1] >> 5) & 1) << 3);  // signed
  Vector sums = ReadVector(state, to);
  for (int lane = 0; lane < 8; ++lane) {
    uint32_t sum = 0;  // unsigned: wraps as the instruction does
    memcpy(&sum, sums.bytes + 4 * lane, sizeof sum);
    for (int k = 4 * lane; k < 4 * lane + 4; ++k) {
      sum += static_cast<uint32_t>(static_cast<int32_t>(a.bytes[k]) *
                                   static_cast<int32_t>(static_cast<signed char>(b.bytes[k])));
    }
    memcpy(sums.bytes + 4 * lane, &sum, sizeof sum);
  }
  WriteVector(state, to, sums);
}

void EmulateAvxVnni(int number, siginfo_t* info, void* raw) {
  ucontext_t& context = *static_cast<ucontext_t*>(raw);
  greg_t& next = context.uc_mcontext.gregs[REG_RIP];
  const unsigned char* at = reinterpret_cast<const unsigned char*>(next);
  if (IsVpdpbusd(at)) {
    Execute(at, reinterpret_cast<unsigned char*>(context.uc_mcontext.fpregs));
    next += kInstructionBytes;
  } else if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, raw);
  } else {
    signal(SIGILL, SIG_DFL);  // the instruction runs again and ends the program
  }
}

}  // namespace

bool InstallAvxVnniEmulator() {
  if (Cpu().avx_vnni) return false;
  uint32_t size = 0, offset = 0, c = 0, d = 0;
  __get_cpuid_count(0xd, 2, &size, &offset, &c, &d);
  high_halves = offset;
  struct sigaction action = {};
  action.sa_sigaction = EmulateAvxVnni;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  struct sigaction before = {};
  sigaction(SIGILL, &action, &before);
  if ((before.sa_flags & SA_SIGINFO) == 0 || before.sa_sigaction != EmulateAvxVnni) previous = before;
  return true;
}

}  // namespace coppice

#include "amx_emulator.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/cpu_info.h"

namespace coppice {
namespace {

constexpr int kTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kMaxRowBytes = 64;

struct Tile {
  int rows = 0;  // 0: not configured
  int row_bytes = 0;
  unsigned char data[kMaxRows][kMaxRowBytes] = {};
};

struct Tiles {
  bool configured = false;
  unsigned char config[64] = {};
  Tile tile[kTiles];
};

thread_local Tiles tiles;

// Nothing but write() is safe in a handler. Returns false, for the callers to return.
bool Fail(const char* reason) {
  const char prefix[] = "amx_emulator: ";
  if (write(STDERR_FILENO, prefix, sizeof prefix - 1) < 0 ||
      write(STDERR_FILENO, reason, strlen(reason)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
    return false;
  }
  return false;
}

// One instruction in VEX form, map 0F38, with W = 0 and 128 bits: the only form that tile instructions have.
struct Instruction {
  int prefix = 0;  // pp: 0 none, 1 66, 2 F3, 3 F2
  int opcode = 0;
  int mod = 0;
  int reg = 0;
  int rm = 0;
  int vvvv = 0;
  bool has_sib = false;
  uint64_t base = 0;   // with displacement
  uint64_t index = 0;  // scaled
  int length = 0;
};

uint64_t Register(const ucontext_t& context, int number) {
  static constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[number]]);
}

// The memory operand after a ModRM byte: `at` points behind it and is moved on.
void DecodeMemory(const ucontext_t& context, int rex_x, int rex_b, const unsigned char*& at, Instruction& i) {
  bool has_base = true;
  int base = i.rm | (rex_b << 3);
  int displacement_bytes = i.mod == 1 ? 1 : i.mod == 2 ? 4 : 0;
  bool from_rip = false;
  if (i.rm == 4) {
    const int sib = *at++;
    i.has_sib = true;
    const int index = ((sib >> 3) & 7) | (rex_x << 3);
    if (index != 4) i.index = Register(context, index) << (sib >> 6);
    base = (sib & 7) | (rex_b << 3);
    if ((sib & 7) == 5 && i.mod == 0) {
      has_base = false;
      displacement_bytes = 4;
    }
  } else if (i.rm == 5 && i.mod == 0) {
    has_base = false;
    from_rip = true;
    displacement_bytes = 4;
  }
  int64_t displacement = 0;
  if (displacement_bytes == 1) displacement = static_cast<signed char>(*at);
  if (displacement_bytes == 4) {
    int32_t wide = 0;
    memcpy(&wide, at, sizeof wide);
    displacement = wide;
  }
  at += displacement_bytes;
  i.base = (has_base ? Register(context, base) : 0) + static_cast<uint64_t>(displacement);
  if (from_rip) i.base += reinterpret_cast<uint64_t>(at);  // no tile instruction has an immediate behind
}

bool Decode(const ucontext_t& context, Instruction& i) {
  const unsigned char* start = reinterpret_cast<const unsigned char*>(context.uc_mcontext.gregs[REG_RIP]);
  const unsigned char* at = start;
  if (at[0] != 0xc4 || (at[1] & 31) != 2) return Fail("not a tile instruction: no VEX prefix of map 0F38");
  const int rex_r = (~at[1] >> 7) & 1;
  const int rex_x = (~at[1] >> 6) & 1;
  const int rex_b = (~at[1] >> 5) & 1;
  if ((at[2] & 0x84) != 0) return Fail("not a tile instruction: VEX.W or VEX.L is set");
  i.vvvv = (~at[2] >> 3) & 15;
  i.prefix = at[2] & 3;
  i.opcode = at[3];
  i.mod = at[4] >> 6;
  i.reg = ((at[4] >> 3) & 7) | (rex_r << 3);
  i.rm = at[4] & 7;
  at += 5;
  if (i.mod != 3) DecodeMemory(context, rex_x, rex_b, at, i);
  if (i.mod == 3 && rex_b) return Fail("a tile register above 7");
  if (i.reg >= kTiles) return Fail("a tile register above 7");
  i.length = static_cast<int>(at - start);
  return true;
}

bool Release() {
  tiles = Tiles();
  return true;
}

bool LoadConfig(const unsigned char* memory) {
  unsigned char config[64];
  memcpy(config, memory, sizeof config);
  if (config[0] == 0) return Release();
  if (config[0] != 1) return Fail("ldtilecfg: the palette is neither 0 nor 1");
  for (int b = 2; b < 16; ++b) {
    if (config[b] != 0) return Fail("ldtilecfg: a reserved byte is not 0");
  }
  Tiles loaded;
  for (int t = 0; t < 16; ++t) {
    uint16_t row_bytes = 0;
    memcpy(&row_bytes, config + 16 + 2 * t, sizeof row_bytes);
    const int rows = config[48 + t];
    if (t >= kTiles) {
      if (rows != 0 || row_bytes != 0) return Fail("ldtilecfg: a tile above 7 is configured");
      continue;
    }
    if (rows > kMaxRows) return Fail("ldtilecfg: more than 16 rows");
    if (row_bytes > kMaxRowBytes) return Fail("ldtilecfg: more than 64 bytes per row");
    if ((rows == 0) != (row_bytes == 0))
      return Fail("ldtilecfg: rows without columns, or columns without rows");
    loaded.tile[t].rows = rows;
    loaded.tile[t].row_bytes = row_bytes;
  }
  if (config[1] >= kMaxRows) return Fail("ldtilecfg: start_row is past the last row");
  loaded.configured = true;
  memcpy(loaded.config, config, sizeof config);
  tiles = loaded;
  return true;
}

bool Usable(int t) {
  if (!tiles.configured) return Fail("a tile is used before ldtilecfg");
  if (tiles.tile[t].rows == 0) return Fail("a tile is used that the configuration leaves out");
  return true;
}

bool Load(const Instruction& i) {
  if (!i.has_sib) return Fail("tileloadd without an index register");
  if (!Usable(i.reg)) return false;
  Tile& t = tiles.tile[i.reg];
  memset(t.data, 0, sizeof t.data);
  for (int r = 0; r < t.rows; ++r) {
    memcpy(t.data[r], reinterpret_cast<const void*>(i.base + static_cast<uint64_t>(r) * i.index),
           t.row_bytes);
  }
  return true;
}

bool Store(const Instruction& i) {
  if (!i.has_sib) return Fail("tilestored without an index register");
  if (!Usable(i.reg)) return false;
  const Tile& t = tiles.tile[i.reg];
  for (int r = 0; r < t.rows; ++r) {
    memcpy(reinterpret_cast<void*>(i.base + static_cast<uint64_t>(r) * i.index), t.data[r], t.row_bytes);
  }
  return true;
}

// Sums [m, n] += a [m, k] b [k, n] in groups of four bytes.
bool CheckProduct(const Instruction& i) {
  const int a = i.rm;
  const int b = i.vvvv;
  if (b >= kTiles) return Fail("a tile register above 7");
  if (!Usable(i.reg) || !Usable(a) || !Usable(b)) return false;
  if (i.reg == a || i.reg == b || a == b) return Fail("a product names the same tile twice");
  const Tile& sums = tiles.tile[i.reg];
  if (sums.row_bytes % 4 != 0 || tiles.tile[a].row_bytes % 4 != 0 || tiles.tile[b].row_bytes % 4 != 0) {
    return Fail("a product over rows that are not whole words");
  }
  if (sums.rows != tiles.tile[a].rows) return Fail("a product whose left side has another number of rows");
  if (sums.row_bytes != tiles.tile[b].row_bytes) return Fail("a product whose right side has another width");
  if (tiles.tile[a].row_bytes / 4 != tiles.tile[b].rows) return Fail("a product whose sides do not meet");
  return true;
}

float FromBf16(const unsigned char* p) {
  uint16_t bits = 0;
  memcpy(&bits, p, sizeof bits);
  const uint32_t wide = (bits & 0x7f80u) == 0 ? (bits & 0x8000u) << 16 : static_cast<uint32_t>(bits) << 16;
  float f = 0;
  memcpy(&f, &wide, sizeof f);
  return f;
}

float FlushDenormal(float f) { return std::fabs(f) < 0x1p-126f ? std::copysign(0.0f, f) : f; }

// The products' loops go over a tile's width inside, so that the compiler makes vectors of them: who runs AMX
// kernels has AVX-512. Element by element they took most of the time of the tests.
#define COPPICE_VECTORS [[gnu::target("avx512f,avx512bw,avx512vl,fma"), gnu::optimize("O3")]]
constexpr int kMaxWords = kMaxRowBytes / 4;

// Even and odd elements have sums of their own, added at the end; denormals count as zero everywhere.
COPPICE_VECTORS void MultiplyBf16(Tile& sums, const Tile& a, const Tile& b) {
  float b_even[kMaxRows][kMaxWords];
  float b_odd[kMaxRows][kMaxWords];
  for (int k = 0; k < b.rows; ++k) {
    for (int n = 0; n < kMaxWords; ++n) {
      b_even[k][n] = FromBf16(b.data[k] + 4 * n);
      b_odd[k][n] = FromBf16(b.data[k] + 4 * n + 2);
    }
  }
  for (int m = 0; m < sums.rows; ++m) {
    float even[kMaxWords] = {};
    float odd[kMaxWords] = {};
    for (int k = 0; k < b.rows; ++k) {
      const float a_even = FromBf16(a.data[m] + 4 * k);
      const float a_odd = FromBf16(a.data[m] + 4 * k + 2);
      for (int n = 0; n < kMaxWords; ++n) {
        even[n] = FlushDenormal(__builtin_fmaf(a_even, b_even[k][n], even[n]));
        odd[n] = FlushDenormal(__builtin_fmaf(a_odd, b_odd[k][n], odd[n]));
      }
    }
    float sum[kMaxWords];
    memcpy(sum, sums.data[m], sizeof sum);
    for (int n = 0; n < kMaxWords; ++n)
      sum[n] = FlushDenormal(FlushDenormal(sum[n]) + FlushDenormal(even[n] + odd[n]));
    memcpy(sums.data[m], sum, static_cast<size_t>(sums.row_bytes));
  }
}

COPPICE_VECTORS void MultiplyBytes(Tile& sums, const Tile& a, const Tile& b, bool a_signed, bool b_signed) {
  // A byte v as a number: (v ^ 128) - 128 if it is signed.
  const int a_sign = a_signed ? 128 : 0;
  const int b_sign = b_signed ? 128 : 0;
  int32_t columns[kMaxRows][4][kMaxWords];  // of b, by the four bytes of a word
  for (int k = 0; k < b.rows; ++k) {
    uint32_t words[kMaxWords];
    memcpy(words, b.data[k], sizeof words);
    for (int j = 0; j < 4; ++j) {
      for (int n = 0; n < kMaxWords; ++n)
        columns[k][j][n] = static_cast<int32_t>(((words[n] >> (8 * j)) & 255u) ^ b_sign) - b_sign;
    }
  }
  for (int m = 0; m < sums.rows; ++m) {
    uint32_t sum[kMaxWords];  // unsigned: wraps as the instruction does
    memcpy(sum, sums.data[m], sizeof sum);
    for (int k = 0; k < a.row_bytes; ++k) {
      const int32_t factor = (a.data[m][k] ^ a_sign) - a_sign;
      for (int n = 0; n < kMaxWords; ++n) sum[n] += static_cast<uint32_t>(factor * columns[k / 4][k % 4][n]);
    }
    memcpy(sums.data[m], sum, static_cast<size_t>(sums.row_bytes));
  }
}
#undef COPPICE_VECTORS

bool Multiply(const Instruction& i) {
  if (i.mod != 3) return Fail("a product with a memory operand");
  if (!CheckProduct(i)) return false;
  Tile& sums = tiles.tile[i.reg];
  const Tile& a = tiles.tile[i.rm];
  const Tile& b = tiles.tile[i.vvvv];
  if (i.opcode == 0x5c) {
    if (i.prefix != 2) return Fail("an unknown product of floats");
    MultiplyBf16(sums, a, b);
  } else {  // none: uu, 66: us, F3: su, F2: ss
    MultiplyBytes(sums, a, b, i.prefix >= 2, i.prefix == 1 || i.prefix == 3);
  }
  return true;
}

bool Execute(const Instruction& i) {
  if (i.opcode == 0x5c || i.opcode == 0x5e) return Multiply(i);
  if (i.vvvv != 0) return Fail("VEX.vvvv is set");
  if (i.opcode == 0x49 && i.mod != 3) {
    if (i.reg != 0 || i.prefix > 1) return Fail("an unknown configuration instruction");
    if (i.prefix == 0) return LoadConfig(reinterpret_cast<const unsigned char*>(i.base + i.index));
    memcpy(reinterpret_cast<void*>(i.base + i.index), tiles.config, sizeof tiles.config);
    return true;
  }
  if (i.opcode == 0x49 && i.prefix == 0 && i.reg == 0 && i.rm == 0) return Release();
  if (i.opcode == 0x49 && i.prefix == 3 && i.rm == 0) {
    if (!Usable(i.reg)) return false;
    memset(tiles.tile[i.reg].data, 0, sizeof tiles.tile[i.reg].data);
    return true;
  }
  if (i.opcode == 0x4b && i.mod != 3 && (i.prefix == 1 || i.prefix == 3)) return Load(i);
  if (i.opcode == 0x4b && i.mod != 3 && i.prefix == 2) return Store(i);
  return Fail("an unknown instruction");
}

bool IsTileInstruction(const unsigned char* at) {
  const int opcode = at[3];
  return at[0] == 0xc4 && (at[1] & 31) == 2 && (at[2] & 0x84) == 0 &&
         (opcode == 0x49 || opcode == 0x4b || opcode == 0x5c || opcode == 0x5e);
}

void EmulateAmx(int, siginfo_t*, void* raw) {
  ucontext_t& context = *static_cast<ucontext_t*>(raw);
  auto& at = context.uc_mcontext.gregs[REG_RIP];
  do {  // a trap takes longer than an instruction, so those that follow at once are emulated in the same one
    Instruction i;
    if (!Decode(context, i) || !Execute(i)) break;
    at += i.length;
    if (!IsTileInstruction(reinterpret_cast<const unsigned char*>(at))) return;
  } while (true);
  signal(SIGILL, SIG_DFL);  // the instruction runs again and ends the program
}

}  // namespace

bool InstallAmxEmulator() {
  if (CpuHas(Isa::kAmx)) return false;
  struct sigaction action = {};
  action.sa_sigaction = EmulateAmx;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, nullptr);
  return true;
}

}  // namespace coppice

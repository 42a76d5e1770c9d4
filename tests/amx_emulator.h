// Runs the tile instructions of AMX on any x86-64 CPU, so that the very machine code of the optimised AMX
// kernels is tested where no CPU has them.
//
// A CPU without AMX raises SIGILL at every tile instruction. The handler decodes it, executes it on tiles of
// its own (one set per thread), and steps over it. Instructions and checks follow Intel's Software
// Developer's Manual, volume 2: ldtilecfg, sttilecfg, tilerelease, tilezero, tileloadd, tileloaddt1,
// tilestored, tdpbf16ps, tdpbssd, tdpbsud, tdpbusd and tdpbuud. Where a real CPU would raise an exception (a
// configuration it rejects, tiles whose shapes do not fit together), the emulator writes the reason to stderr
// and lets the program die of SIGILL.
#pragma once

namespace coppice {

// Installs the handler for the whole process, unless the CPU has AMX: then the instructions run natively,
// which is the better test. Returns whether the emulator is what runs them.
bool InstallAmxEmulator();

}  // namespace coppice

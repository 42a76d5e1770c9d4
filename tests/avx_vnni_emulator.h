// Runs vpdpbusd in its VEX form (AVX-VNNI) on any CPU with AVX2, as amx_emulator.h does for tiles: the CPU
// raises SIGILL, the handler decodes the instruction, executes it on the registers of the interrupted thread
// and steps over it. Only 256 bits and registers as operands: the form that the kernels have. Semantics:
// Intel's Software Developer's Manual, volume 2.
#pragma once

namespace coppice {

// Installs the handler for the whole process, in front of the one that is there, unless the CPU has AVX-VNNI.
// Returns whether the emulator is what runs the instruction.
bool InstallAvxVnniEmulator();

}  // namespace coppice

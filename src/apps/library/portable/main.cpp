// The program of a portable build: all of it is in the library beside it. It has no code that runs before
// main(), because glibc before 2.34 would not call that of a program which was linked on a newer one.
#include <coppice/c.h>

int main(int argc, char** argv) { return coppice_main(argc, argv); }

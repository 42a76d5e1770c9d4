/* Marks what the shared library offers. */
#ifndef COPPICE_EXPORT_H
#define COPPICE_EXPORT_H

#define COPPICE_API __attribute__((visibility("default")))

#endif
